"""A fault: what it is called, when it acts, what it does, where it was reported, and the points it acts at."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch

from spyre_emulator import compiler, conversions, distributed, kernels, private, transfers
from spyre_emulator.kernels import OpCall
from spyre_emulator.settings import SettingError

Tensor = torch.Tensor
Kind = Literal["silent", "crash", "not stated"]
BOTH = ("eager", "compiled")
COMPILED = ("compiled",)


class Point(Protocol):
    """A place in the emulator where a fault acts."""

    def install(self) -> Callable[[], None]:
        """Start to act; the result stops it."""
        ...


@dataclasses.dataclass(frozen=True)
class Fault:
    """A defect that can be switched on; `title`, `trigger` and `effect` are texts, `points` are what acts."""

    id: str
    title: str
    trigger: str
    """Under which condition it acts."""
    effect: str
    """What is wrong then; for a crash the outcome."""
    kind: Kind
    source: str
    """Public issue, pull request or document."""
    points: tuple[Point, ...] = ()
    group: str = ""
    """Mechanism group of the catalogue."""
    assumed: str = ""
    """What of the trigger or effect no source states, so that it had to be chosen."""
    not_modelled: str = ""
    """Why it cannot be switched on; empty where it can."""

    def __post_init__(self) -> None:
        if bool(self.points) == bool(self.not_modelled):
            raise ValueError(f"fault {self.id}: needs points that act, or the reason why it is not modelled")


def _appended(hooks: list[Any], hook: Any) -> Callable[[], None]:
    hooks.append(hook)
    return lambda: hooks.remove(hook)


def _together(removals: list[Callable[[], None]]) -> Callable[[], None]:
    def remove() -> None:
        for one in removals:
            one()

    return remove


def _laid_out_as(correct: Any, wrong: Any) -> Any:
    """`wrong` with the strides of `correct`."""
    if isinstance(wrong, (tuple, list)) and len(wrong) == len(correct):
        return type(wrong)(map(_laid_out_as, correct, wrong))
    if not isinstance(wrong, Tensor) or wrong.shape != correct.shape or wrong.stride() == correct.stride():
        return wrong
    if 0 in correct.stride():  # expanded: its elements share memory and cannot be written apart
        return wrong
    return torch.empty_strided(wrong.shape, correct.stride(), dtype=wrong.dtype, device="cpu").copy_(wrong)


@dataclasses.dataclass(frozen=True)
class AtOperator:
    """Executions of operators, in eager mode and in compiled plans alike."""

    ops: tuple[str, ...]
    """Overload names such as ``aten.mm.default``."""
    trigger: Callable[[OpCall], bool]
    effect: Callable[[OpCall], Any]
    """The wrong result (shadows), or an exception; ``call.proceed()`` gives the correct one."""
    modes: tuple[str, ...] = BOTH

    def install(self) -> Callable[[], None]:
        """Hook each operator of the kernel table; SettingError for one that never passes there."""
        for op in self.ops:
            _check_operator(op, self.modes)

        def hook(call: OpCall) -> Any:
            if call.mode not in self.modes or not self.trigger(call):
                return call.proceed()
            wrong = self.effect(call)
            # A plan was made for the strides of the correct result; eager code follows those it finds.
            return _laid_out_as(call.proceed(), wrong) if call.mode == "compiled" else wrong

        for op in self.ops:
            kernels.add_hook(op, hook)

        def remove() -> None:
            for op in self.ops:
                kernels.remove_hook(op, hook)

        return remove


_COPIES = frozenset({"_to_copy", "clone", "copy", "lift_fresh_copy", "detach"})


def _check_operator(name: str, modes: tuple[str, ...]) -> None:
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    op = getattr(getattr(getattr(torch.ops, namespace, None), packet, None), overload, None)
    if not isinstance(op, private.OpOverload):
        raise SettingError(f"no operator {name!r}; a name has the form aten.mm.default")
    aliases = [a.alias_info for a in op._schema.arguments if a.alias_info is not None]
    if any(a.is_write for a in aliases):
        raise SettingError(f"{name} writes into its operands and runs as its functional form: name that one")
    if packet in _COPIES:
        raise SettingError(f"{name} moves data and is no kernel: use AtCopy, AtCast or AtConversion")
    if any(r.alias_info is not None for r in op._schema.returns) and "eager" in modes:
        raise SettingError(f"{name} makes a view: use AtView")


View = tuple[tuple[int, ...], tuple[int, ...], int]
"""Shape, strides and offset, in elements."""


@dataclasses.dataclass(frozen=True)
class AtView:
    """View operators; the wrong view has the right shape, over other elements of the same memory."""

    ops: tuple[Any, ...]
    """Overloads such as ``torch.ops.aten.transpose.int``."""
    effect: Callable[..., View | None]
    """From the operator's arguments to the wrong view, None where the fault does not act."""
    modes: tuple[str, ...] = BOTH

    def install(self) -> Callable[[], None]:
        """Hook compiled views in the kernel table and eager ones in PyTorch's dispatcher."""
        removals: list[Callable[[], None]] = []
        if "compiled" in self.modes:
            point = AtOperator(tuple(map(str, self.ops)), lambda call: True, self._compiled, COMPILED)
            removals.append(point.install())
        if "eager" in self.modes:
            removals.extend(self._install_eager(op) for op in self.ops)
        return _together(removals)

    def _compiled(self, call: OpCall) -> Any:
        view = self.effect(*call.args, **call.kwargs)
        return call.proceed() if view is None else call.args[0].as_strided(*view)

    def _install_eager(self, op: Any) -> Callable[[], None]:
        correct = private.cpu_kernel(op)

        def kernel(x: Tensor, *args: Any, **kwargs: Any) -> Any:
            view = self.effect(x, *args, **kwargs)
            return correct(x, *args, **kwargs) if view is None else private.as_strided(x, *view)

        overload = op._overloadname
        name = op._schema.name.removeprefix("aten::")
        return private.temporary_kernel(name if overload == "default" else f"{name}.{overload}", kernel)


@dataclasses.dataclass(frozen=True)
class AtCopy:
    """Eager copies to, from and on the device."""

    trigger: Callable[[str, Tensor, Tensor], bool]
    """Of the direction (``h2d``, ``d2h``, ``d2d``), source and destination."""
    effect: Callable[[Tensor, Tensor], None]
    """Writes the wrong values, from source to destination."""

    def install(self) -> Callable[[], None]:
        """Hook the transfers."""

        def hook(direction: str, source: Tensor, destination: Tensor, proceed: Callable[[], None]) -> None:
            if self.trigger(direction, source, destination):
                self.effect(source, destination)
            else:
                proceed()

        return _appended(transfers.hooks, hook)


@dataclasses.dataclass(frozen=True)
class AtConversion:
    """Conversions of 16-bit floats between host and device, wherever they take place."""

    arriving: conversions.ConversionHook | None = None
    """(host values, dtype, device values) to device values."""
    leaving: conversions.ConversionHook | None = None
    """(device values, dtype, host values) to host values."""

    def install(self) -> Callable[[], None]:
        """Hook the conversions."""
        removals = [
            _appended(hooks, hook)
            for hooks, hook in ((conversions.arriving, self.arriving), (conversions.leaving, self.leaving))
            if hook is not None
        ]
        return _together(removals)


@dataclasses.dataclass(frozen=True)
class AtCast:
    """Casts on the device."""

    effect: transfers.CastHook
    """(source dtype, destination dtype, result) to the result, wrong where the fault acts."""

    def install(self) -> Callable[[], None]:
        """Hook the casts."""
        return _appended(transfers.cast_hooks, self.effect)


@dataclasses.dataclass(frozen=True)
class AtPlanInput:
    """Device tensors that enter a compiled plan."""

    effect: compiler.InputHook

    def install(self) -> Callable[[], None]:
        """Hook the inputs of plans."""
        return _appended(compiler.input_hooks, self.effect)


@dataclasses.dataclass(frozen=True)
class AtGraph:
    """Graphs of compiled plans, rewritten in place before the plan is made."""

    effect: compiler.GraphHook
    """Rewrites the graph and tells whether it did; may raise."""

    def install(self) -> Callable[[], None]:
        """Hook the graphs of plans."""
        return _appended(compiler.graph_hooks, self.effect)


@dataclasses.dataclass(frozen=True)
class AtReceive:
    """What arrives on a card from another one."""

    operations: tuple[str, ...]
    """Collectives, such as ``broadcast``."""
    effect: Callable[[Tensor, Tensor], Tensor]
    """(values before, values received) to what the card has afterwards."""

    def install(self) -> Callable[[], None]:
        """Hook the collectives."""

        def hook(operation: str, before: Tensor, received: Tensor) -> Tensor:
            return self.effect(before, received) if operation in self.operations else received

        return _appended(distributed.receive_hooks, hook)
