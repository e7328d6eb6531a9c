"""Which faults exist, which are on, and how they are switched: by environment, by context, by registration."""

from __future__ import annotations

import contextlib
import difflib
import importlib
from collections.abc import Callable, Iterator, Mapping

from spyre_emulator.faults.fault import Fault
from spyre_emulator.settings import SettingError

VARIABLE = "SPYRE_EMULATOR_FAULTS"
_known: dict[str, Fault] = {}
_removals: dict[str, list[Callable[[], None]]] = {}
_depth: dict[str, int] = {}


def register_fault(fault: Fault) -> Fault:
    """Make `fault` known, so that it can be switched on by its id; an id that is taken is an error."""
    if fault.id in _known:
        raise SettingError(f"fault {fault.id}: the id is taken by {_known[fault.id].title!r}; choose another")
    _known[fault.id] = fault
    return fault


def unregister_fault(fault_id: str) -> None:
    """Forget a fault that is off."""
    if fault_id in _depth:
        raise SettingError(f"fault {fault_id} is on; leave its context first")
    del _known[fault_id]


def fault_catalogue() -> tuple[Fault, ...]:
    """Every known fault, the catalogue's first; those that cannot be switched on say why in ``not_modelled``."""
    return tuple(_known.values())


def active_faults() -> tuple[str, ...]:
    """Ids of the faults that are on, sorted."""
    return tuple(sorted(_depth))


def _find(fault_id: str) -> Fault:
    fault = _known.get(fault_id)
    if fault is None:
        near = difflib.get_close_matches(fault_id, _known, n=1)
        hint = f"did you mean {near[0]}?" if near else "see spyre_emulator.fault_catalogue()"
        raise SettingError(f"no fault {fault_id!r}; {hint}")
    if fault.not_modelled:
        raise SettingError(f"fault {fault_id} cannot be switched on: {fault.not_modelled}")
    return fault


def _switch_on(fault: Fault) -> None:
    if not _depth.get(fault.id):
        installed: list[Callable[[], None]] = []
        _removals[fault.id] = installed
        installed.extend(point.install() for point in fault.points)
    _depth[fault.id] = _depth.get(fault.id, 0) + 1


def _switch_off(fault: Fault) -> None:
    _depth[fault.id] -= 1
    if not _depth[fault.id]:
        del _depth[fault.id]
        for remove in reversed(_removals.pop(fault.id)):
            remove()


@contextlib.contextmanager
def faults(*fault_ids: str) -> Iterator[tuple[Fault, ...]]:
    """The faults of these ids on, inside the context, for eager calls and for compiled plans that run in it.

    SettingError for an id that is unknown or cannot be modelled. Process-wide, like every setting of the device.
    """
    chosen = tuple(_find(i) for i in fault_ids)
    with contextlib.ExitStack() as stack:
        for fault in chosen:
            _switch_on(fault)
            stack.callback(_switch_off, fault)
        yield chosen


def switch_on_from(environment: Mapping[str, str]) -> tuple[Fault, ...]:
    """Switch on, for the rest of the process, the faults that ``SPYRE_EMULATOR_FAULTS`` names.

    Entries are separated by commas: an id of the catalogue, or ``module:ID`` for a fault that importing `module`
    registers.
    """
    chosen = []
    for entry in filter(None, (part.strip() for part in environment.get(VARIABLE, "").split(","))):
        module, _, fault_id = entry.rpartition(":")
        try:
            if module:
                importlib.import_module(module)
            chosen.append(_find(fault_id))
        except (ImportError, SettingError) as error:
            raise SettingError(f"{VARIABLE}: {error}") from error
    for fault in chosen:
        _switch_on(fault)
    return tuple(chosen)
