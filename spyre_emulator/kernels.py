"""The kernel table: one entry per aten operator, used by eager dispatch and by compiled plans alike.

A kernel computes on host shadows (float32 for both 16-bit float dtypes) and its result is rounded to DLFloat16 here,
once, so that eager and compiled results are the same bits. Hooks see every result on both paths: faults live there.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from spyre_emulator import padding, private, settings
from spyre_emulator.dtypes import DLFLOAT
from spyre_emulator.numerics import round_, round_scalar

OpOverload = private.OpOverload
Tensor = torch.Tensor


@dataclasses.dataclass(slots=True)
class Kernel:
    """How one operator is computed on shadows."""

    op: OpOverload
    compute: Callable[..., Any]
    """Functional: takes shadows, returns new tensors (or views, for a view operator)."""
    rounds: bool = True
    """False where 16-bit operands give exact results: moved, selected or sign-changed values."""
    scalars: bool = True
    """Whether number arguments are constants that the device encodes in the operands' format."""
    in_place: Callable[..., Any] | None = None
    """For operators that move values: the form that writes into its first argument."""
    is_view: bool = False
    program: bool = False
    """True where `compute` is a device program: it takes ``half=`` and rounds by itself."""
    packed: tuple[int, ...] = ()
    """Positions of weights that may arrive as 16-bit codes (int16)."""
    reads: padding.Reader | None = None
    """How it reads whole sticks, for the debug switch ``nan_padding``; None: it reads logical elements alone."""
    numbers: tuple[int, ...] = ()
    """Positions of the arguments that may be such numbers; filled in from the schema."""
    complete: Callable[[tuple[Any, ...], torch.dtype], tuple[Any, ...]] | None = None
    """Fills in numbers that were left out and depend on the 16-bit dtype, which shadows do not show."""

    def __post_init__(self) -> None:
        if self.scalars and not self.is_view:
            types = [str(a.type) for a in self.op._schema.arguments if not a.kwarg_only]
            self.numbers = tuple(i for i, t in enumerate(types) if t in _NUMBER_TYPES)


@dataclasses.dataclass(slots=True)
class OpCall:
    """One execution of an operator, as a hook sees it."""

    op: OpOverload
    args: tuple[Any, ...]
    """Shadows in place of tensors; shape, strides and offset are those of the device tensors."""
    kwargs: dict[str, Any]
    dtypes: tuple[torch.dtype | None, ...]
    """Logical dtype per positional argument, None for what is no tensor."""
    mode: str
    """``eager`` or ``compiled``."""
    proceed: Callable[[], Any]
    """Computes and rounds the correct result."""

    def sticks(self, position: int) -> Tensor:
        """Operand `position` in whole sticks, as a kernel reads it that masks nothing: NaN behind the rows' ends with
        ``nan_padding``, otherwise some number."""
        return padding.whole_sticks(self.args[position], self.dtypes[position] or torch.float16)


class Hook(Protocol):
    """Replaces the result of operator executions; calls ``call.proceed()`` for the correct one."""

    def __call__(self, call: OpCall) -> Any: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of a call's results before it is computed."""

    dtypes: tuple[torch.dtype | None, ...]
    """Logical dtype per result."""
    half: bool
    """Whether it computes on DLFloat16 numbers: a 16-bit float among the operands or results."""
    rounds: bool
    """Whether its results have to be rounded."""


_NUMBER_TYPES = frozenset({"number", "Optional[number]", "Tensor"})
_table: dict[OpOverload, Kernel] = {}
_hooks: dict[str, list[Hook]] = {}
generation = 0
"""Grows when hooks change, so that compiled plans bind anew."""


def register(kernel: Kernel) -> Kernel:
    """Put `kernel` into the table; a second entry for one operator is an error."""
    if kernel.op in _table:
        raise ValueError(f"{kernel.op}: a kernel is registered already")
    _table[kernel.op] = kernel
    return kernel


def lookup(op: OpOverload) -> Kernel:
    """The kernel of `op`; an operator without an entry is computed by PyTorch on the CPU and rounded."""
    kernel = _table.get(op)
    if kernel is None:
        returns = op._schema.returns
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        kernel = _table[op] = Kernel(op, op, is_view=is_view)
    return kernel


def registered() -> dict[OpOverload, Kernel]:
    """The table as it stands: explicit entries and those made on first use."""
    return dict(_table)


def add_hook(op: str, hook: Hook) -> None:
    """Let `hook` see each execution of operator `op` (overload name such as ``aten.mm.default``)."""
    global generation
    _hooks.setdefault(op, []).append(hook)
    generation += 1


def remove_hook(op: str, hook: Hook) -> None:
    """Undo `add_hook`."""
    global generation
    _hooks[op].remove(hook)
    if not _hooks[op]:
        del _hooks[op]
    generation += 1


def hooked() -> frozenset[str]:
    """Names of the operators that have hooks."""
    return frozenset(_hooks)


def is_hooked(op: OpOverload) -> bool:
    """Whether a hook sees `op`."""
    return bool(_hooks) and str(op) in _hooks


def outcome(kernel: Kernel, operands: Sequence[torch.dtype], results: Sequence[torch.dtype | None]) -> Outcome:
    """The outcome of a call of `kernel` with operands and results of these logical dtypes."""
    wide = any(d.is_floating_point and d not in DLFLOAT for d in operands)
    to_half = any(d in DLFLOAT for d in results)
    half = to_half or any(d in DLFLOAT for d in operands)
    rounds = to_half and not kernel.program and (kernel.rounds or wide)
    return Outcome(tuple(results), half, rounds)


def encoded(kernel: Kernel, outcome: Outcome, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`args` with numbers as the device encodes constants; for calls on DLFloat16 numbers."""
    for i in kernel.numbers:
        if i < len(args) and isinstance(args[i], (float, int)) and not isinstance(args[i], bool):
            constant = round_scalar(args[i])
            if constant != args[i]:
                args = (*args[:i], constant, *args[i + 1 :])
    dtype = outcome.dtypes[0]
    return args if kernel.complete is None or dtype is None else kernel.complete(args, dtype)


def round_results(result: Any, dtypes: Sequence[torch.dtype | None]) -> Any:
    """`result` with every tensor whose logical dtype is a 16-bit float rounded in place."""
    if isinstance(result, Tensor):
        return round_(result) if dtypes[0] in DLFLOAT else result
    if isinstance(result, (tuple, list)):
        per_item = dtypes if len(dtypes) == len(result) else [dtypes[0]] * len(result)
        for item, dtype in zip(result, per_item, strict=True):
            if isinstance(item, (tuple, list)):
                round_results(item, [dtype])
            elif isinstance(item, Tensor) and dtype in DLFLOAT:
                round_(item)
    return result


def compute(kernel: Kernel, outcome: Outcome, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The rounded result on shadows, without hooks."""
    if outcome.half and kernel.numbers:
        args = encoded(kernel, outcome, args)
    if kernel.program:
        return kernel.compute(*args, **kwargs, half=outcome.half)
    result = kernel.compute(*args, **kwargs)
    if outcome.rounds:
        return round_(result) if type(result) is Tensor else round_results(result, outcome.dtypes)
    return result


def probed(
    kernel: Kernel,
    outcome: Outcome,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dtypes: Sequence[torch.dtype | None],
) -> Any:
    """`compute`, with NaN where padding lanes would reach its result; see `spyre_emulator.padding`."""
    result = compute(kernel, outcome, args, kwargs)
    images = kernel.reads(args, dtypes) if kernel.reads is not None else None
    return result if images is None else padding.poisoned(result, compute(kernel, outcome, images, kwargs))


def run_hooked(
    kernel: Kernel,
    outcome: Outcome,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dtypes: tuple[torch.dtype | None, ...],
    mode: str,
) -> Any:
    """`compute` through the hooks of the operator; `dtypes` are those of the positional arguments."""
    call = functools.partial(compute, kernel, outcome, args, kwargs)
    if settings.current.nan_padding:
        call = functools.partial(probed, kernel, outcome, args, kwargs, dtypes)
        if is_hooked(kernel.op):
            args = tuple(map(padding.held, args, dtypes))
    return through_hooks(kernel, args, kwargs, dtypes, mode, call)


def through_hooks(
    kernel: Kernel,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dtypes: tuple[torch.dtype | None, ...],
    mode: str,
    call: Callable[[], Any],
) -> Any:
    """What the hooks of the operator make of `call`, which gives the correct result."""
    for hook in _hooks.get(str(kernel.op), ()):
        call = functools.partial(hook, OpCall(kernel.op, args, kwargs, dtypes, mode, call))
    return call()
