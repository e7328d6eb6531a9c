"""What was executed on the device, counted while a recording is open, in eager and in compiled mode."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import torch

from spyre_emulator import operators, private

Operand = tuple[tuple[int, ...], tuple[int, ...], str]
Key = tuple[Any, bool, tuple[Any, ...], bool]
"""(operator, whether compiled, per tensor operand (shape, strides, dtype), whether its arguments are refused)."""


class OpVariant(NamedTuple):
    """One operator with the geometry of its tensor operands."""

    op: str
    """Overload name, e.g. ``aten.mm.default``."""
    state: str
    """``spyre_enabled``, ``cpu_fallback``, ``spyre_failed`` or ``not_implemented`` on the published stack."""
    operands: tuple[Operand, ...]
    """(shape, strides, dtype name) of each tensor operand; a None entry would be no tensor and is left out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileReport:
    """What ``torch.compile`` did for the device while recording; steps are of the distinct plans that ran."""

    graphs: int = 0
    graph_breaks: int = 0
    recompiles: int = 0
    plan_steps: int = 0
    native_steps: int = 0
    fallback_steps: int = 0
    view_steps: int = 0
    padded_bytes: int = 0
    """Padding lanes of computed values, in the layouts that the plans chose."""
    restickifies: int = 0
    restickified_bytes: int = 0
    """Device memory read and written to rearrange operands."""
    scratchpad_buffers: int = 0
    """Intermediates that stay on the cores."""
    pool_buffers: int = 0
    """Intermediates in the pool."""
    pool_peak: int = 0
    """Bytes of the pool in use at once, in the plan that uses most."""
    working_set: int = 0
    """Bytes per core of the operator that uses most."""
    spilling_steps: int = 0
    """Operators whose operands and result together exceed what is free in a scratchpad."""
    estimated_seconds: float = 0.0
    """ESTIMATE of device time for one run of each plan (`spyre_emulator.estimate`)."""
    seconds: float = 0.0
    """Time spent building plans: AOT tracing and planning, Dynamo's own time included."""


class PlanFacts(NamedTuple):
    """Static facts of one plan."""

    native: int
    fallback: int
    views: int
    padded_bytes: int
    restickifies: int
    restickified_bytes: int
    scratchpad_buffers: int
    scratchpad_peak: int
    """Bytes per core."""
    pool_buffers: int
    pool_peak: int
    working_set: int
    """Bytes per core of the operator that uses most."""
    spilling_steps: int
    """Operators whose operands and result together exceed what is free in a scratchpad."""
    estimated_seconds: float
    recompilation: bool
    """Whether guards of an earlier plan for the same code had failed."""


class CountedPlan(Protocol):
    """A compiled plan as the recording sees it."""

    facts: PlanFacts

    def tally(self, binding: tuple[int, ...]) -> Counter[Key]:
        """Operator executions of one run, for one binding of symbolic sizes."""


class Recording:
    """Counts of one recording; read them after (or while) it is open."""

    def __init__(self) -> None:
        self.eager: Counter[Key] = Counter()
        self.plans: Counter[tuple[CountedPlan, tuple[int, ...]]] = Counter()
        self.compiled_plans: list[CountedPlan] = []
        self.compile_seconds = 0.0
        self._breaks_before = private.graph_breaks()
        self._breaks_after: int | None = None

    def close(self) -> None:
        """Fix the compile counters."""
        self._breaks_after = private.graph_breaks()

    def _keys(self) -> Counter[Key]:
        total = Counter(self.eager)
        for (plan, binding), runs in self.plans.items():
            for key, count in plan.tally(binding).items():
                total[key] += count * runs
        return total

    @property
    def ops(self) -> dict[OpVariant, int]:
        """Executions per operator variant; views and copies are not counted."""
        result: Counter[OpVariant] = Counter()
        for key, count in self._keys().items():
            result[OpVariant(str(key[0]), _state(key), _named(key[2]))] += count
        return dict(result)

    def _count(self, *, on_device: bool) -> int:
        keys = self._keys().items()
        return sum(count for key, count in keys if (_state(key) in operators.ON_DEVICE) is on_device)

    @property
    def ops_on_device(self) -> int:
        """Executed operator calls that the device itself performs."""
        return self._count(on_device=True)

    @property
    def fallbacks(self) -> int:
        """Executed operator calls that run on the CPU instead, or that the published stack lacks."""
        return self._count(on_device=False)

    @property
    def compiled(self) -> CompileReport:
        """Compile facts of this recording."""
        breaks = private.graph_breaks() if self._breaks_after is None else self._breaks_after
        plans = {id(plan): plan for plan, _ in self.plans} | {id(plan): plan for plan in self.compiled_plans}
        facts = [plan.facts for plan in plans.values()]
        return CompileReport(
            graphs=len(plans),
            graph_breaks=breaks - self._breaks_before,
            recompiles=sum(plan.facts.recompilation for plan in self.compiled_plans),
            plan_steps=sum(f.native + f.fallback + f.views for f in facts),
            native_steps=sum(f.native for f in facts),
            fallback_steps=sum(f.fallback for f in facts),
            view_steps=sum(f.views for f in facts),
            padded_bytes=sum(f.padded_bytes for f in facts),
            restickifies=sum(f.restickifies for f in facts),
            restickified_bytes=sum(f.restickified_bytes for f in facts),
            scratchpad_buffers=sum(f.scratchpad_buffers for f in facts),
            pool_buffers=sum(f.pool_buffers for f in facts),
            pool_peak=max((f.pool_peak for f in facts), default=0),
            working_set=max((f.working_set for f in facts), default=0),
            spilling_steps=sum(f.spilling_steps for f in facts),
            estimated_seconds=sum(f.estimated_seconds for f in facts),
            seconds=self.compile_seconds,
        )


def _state(key: Key) -> str:
    op, compiled, operands, refused = key
    geometry = tuple((tuple(shape), dtype) for shape, _, dtype in operands)
    state = operators.state_with_operands(op, geometry, compiled=compiled)
    return operators.FAILED if refused and state == operators.ENABLED else state


def _named(operands: tuple[Any, ...]) -> tuple[Operand, ...]:
    return tuple((tuple(shape), tuple(stride), str(dtype).removeprefix("torch.")) for shape, stride, dtype in operands)


def operand_key(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensor operands among `args` (one level of lists deep), as part of a `Key`."""
    found: list[Any] = []
    for a in args:
        if isinstance(a, torch.Tensor):
            found.append((a.shape, a.stride(), a.dtype))
        elif isinstance(a, (list, tuple)):
            found.extend((x.shape, x.stride(), x.dtype) for x in a if isinstance(x, torch.Tensor))
    return tuple(found)


active: list[Recording] = []
"""Open recordings, innermost last; empty most of the time, which is all the hot path tests."""


@contextlib.contextmanager
def record() -> Iterator[Recording]:
    """A recording that counts what runs inside the context."""
    recording = Recording()
    active.append(recording)
    try:
        yield recording
    finally:
        active.remove(recording)
        recording.close()
