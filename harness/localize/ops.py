"""The ops of one stretch of the candidate, each against the CPU with the very same operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from harness.localize.geometry import on_host, plain
from harness.localize.numbers import relative
from harness.records import Cause, OpError, TensorSpec

Tensor = torch.Tensor
HALVES = (torch.float16, torch.bfloat16)

STAND_INS: dict[str, Callable[..., Any]] = {}
"""CPU forms of ops that only devices have, by overload name; results in the same order, later ones may miss."""


def stand_in(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the CPU form of a device's op."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        STAND_INS[name] = function
        return function

    return register


@stand_in("aten._scaled_dot_product_fused_attention_overrideable.default")
def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None, **_: Any,
) -> tuple[Tensor]:  # fmt: skip
    attend = torch.nn.functional.scaled_dot_product_attention
    grouped = query.shape[1] != key.shape[1]
    return (attend(query, key, value, attn_bias, 0.0, is_causal, scale=scale, enable_gqa=grouped),)


@dataclass(frozen=True)
class Execution:
    """One op with its operands on the host, as it can be repeated."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    """Tensors on the host, with the strides and offsets that they had on the device."""

    def tensors(self) -> list[Tensor]:
        """The tensor operands."""
        return [leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Tensor)]

    def mapped(self, change: Callable[[Any], Any]) -> Execution:
        """The same with every leaf changed."""
        args, kwargs = pytree.tree_map(change, (self.args, self.kwargs))
        return Execution(self.op, args, kwargs)

    def on_cpu(self) -> list[Tensor] | None:
        """Results on the CPU from copies of the operands; None where it has no such op."""
        return _on_cpu(self)

    def results(self) -> list[Tensor]:
        """Run the op where its operands are; result tensors, and operands that it wrote to."""
        result = self.op(*self.args, **self.kwargs)
        return _results(self, result)


def on_device(execution: Execution, device: torch.device) -> Execution:
    """The execution with its operands on the device, strides and offsets kept."""

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return device if isinstance(leaf, torch.device) else leaf
        if plain(leaf):
            return leaf.to(device)
        extent = 1 + sum((n - 1) * step for n, step in zip(leaf.shape, leaf.stride(), strict=True))
        flat = leaf.as_strided((leaf.storage_offset() + extent,), (1,), 0)
        return flat.to(device).as_strided(leaf.shape, leaf.stride(), leaf.storage_offset())

    return execution.mapped(move)


def contiguous(execution: Execution) -> Execution:
    """The execution with every operand contiguous and at the start of a storage of its own."""
    return execution.mapped(lambda leaf: _own_storage(leaf) if isinstance(leaf, Tensor) else leaf)


def widened(execution: Execution) -> Execution:
    """The execution in float32 instead of a 16-bit format."""

    def widen(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.dtype in HALVES:
            return on_host(leaf, torch.float32)
        return torch.float32 if leaf in HALVES else leaf

    return execution.mapped(widen)


def measure(execution: Execution, found: list[Tensor], small: float = 0.0) -> tuple[float | None, float | None] | None:
    """Relative L2 error of the device's results and of the control's, the worst pair; None when the CPU cannot tell.

    A device whose errors are all below ``small`` needs no control, and gets none: 16-bit products are slow on a CPU.
    """
    expected = _on_cpu(widened(execution))
    if expected is None:
        return None
    errors = [
        relative(one, other.detach().cpu())
        for one, other in zip(expected, found, strict=False)
        if one.shape == other.shape
    ]
    if len(errors) == len(expected) and not any(odd or (error or 0.0) > small for error, odd in errors):
        return max((error for error, _ in errors if error is not None), default=None), None
    control = _on_cpu(execution)
    worst: tuple[float | None, float | None] = (None, None)
    for index, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one.shape != other.shape:
            return (math.inf, 0.0)
        error, odd = relative(one, other.detach().cpu())
        mine = None if control is None or index >= len(control) else relative(one, control[index])
        if odd > (mine[1] if mine else 0):
            return (math.inf, 0.0)
        if error is not None and error >= (worst[0] or 0.0):
            worst = (error, mine[0] if mine else None)
    return worst


def excess(measured: tuple[float | None, float | None] | None, floor: float) -> float:
    """The device's error in units of the control's and the format's; 0 when there is nothing to say."""
    if measured is None or measured[0] is None:
        return 0.0
    return measured[0] / math.hypot(measured[1] or 0.0, floor)


class Inspection(TorchDispatchMode):
    """Checks each op that a device runs while the mode is on, and keeps the first one out of proportion."""

    def __init__(self, device: torch.device, floor: float, limit: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._floor = floor
        self._limit = limit
        self.first: tuple[Execution, tuple[float | None, float | None]] | None = None
        self.checked = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.first is not None or not self._concerns(func, args, kwargs):
            return func(*args, **kwargs)
        execution = Execution(func, args, kwargs).mapped(host_copy)
        result = func(*args, **kwargs)
        small = self._floor * self._limit
        measured = measure(execution, _results(Execution(func, args, kwargs), result), small)
        self.checked += measured is not None
        if excess(measured, self._floor) > self._limit:
            assert measured is not None
            self.first = (execution, measured)
        return result

    def _concerns(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if not repeatable(func):
            return False
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        return any(leaf.device.type == self._device.type for leaf in leaves)


def repeatable(func: Any) -> bool:
    """Whether an op gives the same result twice: attention is tagged as random for its dropout, which is off."""
    if "empty" in func._schema.name:
        return False
    return str(func) in STAND_INS or torch.Tag.nondeterministic_seeded not in func.tags


class LastOp(TorchDispatchMode):
    """Remembers the op that is running, for when it raises."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.running: Execution | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.running = Execution(func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        self.running = None
        return result

    def execution(self) -> Execution | None:
        """The op that raised, with its operands on the host."""
        return None if self.running is None else self.running.mapped(host_copy)


def cause_of(execution: Execution, device: torch.device, floor: float, limit: float) -> Cause:
    """What of an op's operands makes it wrong, found by changing one thing at a time."""
    if not all(plain(tensor) for tensor in execution.tensors()) and _right(contiguous(execution), device, floor, limit):
        return Cause.LAYOUT
    if any(tensor.dtype in HALVES for tensor in execution.tensors()) and _right(
        widened(execution), device, floor, limit
    ):
        return Cause.DTYPE
    return Cause.OP


def reproduces(execution: Execution, device: torch.device, floor: float, limit: float) -> bool:
    """Whether the op alone, with these operands, is out of proportion on the device."""
    return excess(repeat(execution, device), floor) > limit


def repeat(execution: Execution, device: torch.device, small: float = 0.0) -> tuple[float | None, float | None] | None:
    """Run the op alone on the device and measure it."""
    return measure(execution, on_device(execution, device).results(), small)


def _right(execution: Execution, device: torch.device, floor: float, limit: float) -> bool:
    try:
        measured = repeat(execution, device)
    except (RuntimeError, NotImplementedError, TypeError):
        return False  # the device has no such form of the op: nothing is learnt from it
    return measured is not None and excess(measured, floor) <= limit


def described(execution: Execution, measured: tuple[float | None, float | None] | None) -> OpError:
    """The execution as a record."""
    tensors = execution.tensors()
    return OpError(
        op=str(execution.op),
        operands=tuple(spec(tensor) for tensor in tensors),
        offsets=tuple(tensor.storage_offset() for tensor in tensors),
        relative_l2=measured[0] if measured else None,
        control=measured[1] if measured else None,
    )


def spec(tensor: Tensor) -> TensorSpec:
    """Geometry of a tensor."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(shape=tuple(tensor.shape), strides=tuple(tensor.stride()), dtype=dtype)


def host_copy(leaf: Any) -> Any:
    """A leaf of an execution's operands as it is kept on the host."""
    if isinstance(leaf, Tensor):
        return on_host(leaf)
    return torch.device("cpu") if isinstance(leaf, torch.device) else leaf


def _own_storage(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _on_cpu(execution: Execution) -> list[Tensor] | None:
    """Results on the CPU from copies of the operands; None where it has no such op."""
    copied = execution.mapped(host_copy)
    stands = STAND_INS.get(str(execution.op))
    try:
        if stands is not None:
            return _tensors(stands(*copied.args, **copied.kwargs))
        return copied.results()
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return None


def _results(execution: Execution, result: Any) -> list[Tensor]:
    """Result tensors and the operands that were written to."""
    written = []
    for position, argument in enumerate(execution.op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            by_position = position < len(execution.args) and not argument.kwarg_only
            written.append(execution.args[position] if by_position else execution.kwargs.get(argument.name))
    return [*_tensors(result), *_tensors(written)]


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
