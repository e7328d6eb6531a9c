"""Stick dimensions through a graph: which operands have to be restickified before an operator can read them.

Fresh tensors are sticked along their last dimension and views keep the arrangement of what they view, so the stick
of a value is the dimension with host stride 1. Pointwise operands share the stick of the result; matmul reads A
sticked on k and B on n, both their last dimension (torch-spyre, operand rules).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from spyre_emulator import private
from spyre_emulator.constraints import MATMUL, name_of
from spyre_emulator.dtypes import DLFLOAT, device_format

Tensor = torch.Tensor


class Restickify(NamedTuple):
    """One operand that is rearranged before an operator reads it (``ReStickifyOpHBM``)."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    have: int
    """Dimension that is sticked."""
    need: int
    """Dimension that has to be."""

    @property
    def supported(self) -> bool:
        """Whether the device can: 16-bit formats only (torch-spyre#1796)."""
        return self.dtype in DLFLOAT or device_format(self.dtype).itemsize == 2


def stick_dimension(value: Tensor) -> int | None:
    """The sticked dimension of `value`; None where it has a single element per row or no dimension."""
    sizes = [private.size_hint(s) for s in value.shape]
    for d in reversed(range(len(sizes))):
        if sizes[d] > 1 and private.size_hint(value.stride()[d]) == 1:
            return d
    return None


def restickifies(op: Any, operands: list[Any], result: Any) -> list[Restickify]:
    """The operands of `op` that have to be rearranged; `operands` and `result` are (fake) values."""
    name = name_of(op)
    tensors = [v for v in operands if isinstance(v, Tensor) and v.dim() > 0]
    if name in MATMUL:
        return [r for v in tensors[-2:] if (r := _to_dimension(v, v.dim() - 1)) is not None]
    if not isinstance(result, Tensor) or not result.dim():
        return []
    wanted = stick_dimension(result)
    if wanted is None or (len(tensors) < 2 and name != "clone"):
        return []
    from_right = result.dim() - wanted
    aligned = [v for v in tensors if v.dim() >= from_right and _covers(v, result, from_right)]
    return [r for v in aligned if (r := _to_dimension(v, v.dim() - from_right)) is not None]


def _covers(value: Tensor, result: Tensor, from_right: int) -> bool:
    """Whether `value` spans the result's stick dimension; what broadcasts there is read with any arrangement."""
    return private.size_hint(value.shape[-from_right]) == private.size_hint(result.shape[-from_right])


def _to_dimension(value: Tensor, need: int) -> Restickify | None:
    have = stick_dimension(value)
    if have is None or have == need or private.size_hint(value.shape[need]) == 1:
        return None
    return Restickify(tuple(map(private.size_hint, value.shape)), value.dtype, have, need)
