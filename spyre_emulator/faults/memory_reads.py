"""Reads of memory that a layout defect gets wrong, shared by the faults of the catalogue."""

from __future__ import annotations

import torch

from spyre_emulator import kernels
from spyre_emulator.dtypes import DLFLOAT
from spyre_emulator.kernels import OpCall
from spyre_emulator.numerics import round_

Tensor = torch.Tensor
STICK = 64
"""Elements of a 16-bit dtype in a stick."""


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of `shape`."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def elements_of_storage(x: Tensor) -> int:
    """Elements of `x`'s dtype that its storage holds."""
    return x.untyped_storage().nbytes() // x.element_size()


def is_part_of_storage(x: Tensor) -> bool:
    """Whether `x` is a view of a larger allocation."""
    return x.numel() < elements_of_storage(x)


def read_densely(x: Tensor, offset: int | None = None) -> Tensor:
    """`x`'s memory read from `offset` (its own) as if its rows followed one another: strides are ignored."""
    start = int(x.storage_offset()) if offset is None else offset
    available = elements_of_storage(x)
    if start + x.numel() <= available:
        return x.as_strided(x.shape, dense_strides(tuple(x.shape)), start)
    flat = x.as_strided((available,), (1,), 0)
    positions = (torch.arange(x.numel(), device="cpu") + start) % available
    return flat[positions].view(x.shape)


def is_half(call: OpCall) -> bool:
    """Whether a 16-bit float is among the positional operands."""
    return any(d in DLFLOAT for d in call.dtypes)


def rounded_as(call: OpCall, result: Tensor) -> Tensor:
    """`result`, rounded in place where the operator works on 16-bit floats."""
    return round_(result) if is_half(call) else result


def computed_with(call: OpCall, *args: object) -> object:
    """The correct result of the operator for other arguments."""
    kernel = kernels.lookup(call.op)
    operands = [d for d in call.dtypes if d is not None]
    outcome = kernels.outcome(kernel, operands, operands[:1])
    return kernels.compute(kernel, outcome, args, call.kwargs)
