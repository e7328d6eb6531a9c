"""Sticks of values in a graph: along which dimension a buffer's elements lie in sticks, and how views see that.

A stick is named by its *host stride*: the elements of one stick follow each other at that stride in the host's
numbering. A view of a buffer has other dimensions and strides, but the same stick, so that views need no rule of
their own. ``SPARSE`` (0) means one element per stick, as reductions over the stick dimension leave it
(torch-spyre:docs/source/user_guide/tensors_and_layouts.md).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from spyre_emulator import layout, private
from spyre_emulator.dtypes import BYTES_IN_STICK, DLFLOAT, device_format

SPARSE = 0
"""The stick of a buffer with a single element per stick."""


class Geometry(NamedTuple):
    """Shape, strides and offset of a (fake) tensor, symbolic sizes replaced by their hints."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    def dimension(self, stick: int) -> int | None:
        """The dimension that runs along `stick`; None where it has none of two elements or more."""
        if stick == SPARSE:
            return None
        for d in reversed(range(len(self.shape))):
            if self.shape[d] > 1 and self.strides[d] == stick:
                return d
        return None

    def device_bytes(self, stick: int) -> int:
        """Bytes on the device, padding lanes included, with the dimension along `stick` in sticks."""
        d = self.dimension(stick)
        if d is None:
            return max(self.numel, not self.shape) * BYTES_IN_STICK
        return layout.device_bytes((*self.shape[:d], *self.shape[d + 1 :], self.shape[d]), self.dtype)

    def padded_bytes(self, stick: int) -> int:
        """Bytes of padding lanes among `device_bytes`."""
        return self.device_bytes(stick) - self.numel * device_format(self.dtype).itemsize

    def layout(self, stick: int) -> layout.SpyreTensorLayout:
        """The device layout: the default rule with the dimension along `stick` in the last place (inferred)."""
        d = self.dimension(stick)
        if d is None:
            return layout.default_layout((*self.shape, 1), (*self.strides, 0), self.dtype)
        order = [*(i for i in range(len(self.shape)) if i != d), d]
        return layout.default_layout(
            tuple(self.shape[i] for i in order), tuple(self.strides[i] for i in order), self.dtype
        )


def geometry(value: torch.Tensor) -> Geometry:
    """The geometry of a (fake) tensor."""
    hint = private.size_hint
    return Geometry(
        tuple(map(hint, value.shape)), tuple(map(hint, value.stride())), hint(value.storage_offset()), value.dtype
    )


def default_stick(shape: Geometry) -> int:
    """The stick of a fresh tensor: along its last dimension; of a dense one in another order, along stride 1."""
    if not shape.shape or shape.shape[-1] == 1:
        return SPARSE
    strides = [s for n, s in zip(shape.shape, shape.strides, strict=True) if n > 1 and s > 0]
    return min(strides, default=SPARSE)


def sees_whole_sticks(view: Geometry, buffer: Geometry, stick: int) -> bool:
    """Whether `view` of `buffer` can be read stick by stick.

    It cannot where it begins inside a stick (``storage_offset % elems_per_stick``, torch-spyre#3798), where another
    of its dimensions moves inside a stick, or where it joins rows whose last sticks are partial.
    """
    if stick == SPARSE or view.numel == 0:
        return True
    lanes = device_format(buffer.dtype).elements_per_stick
    along = buffer.dimension(stick)
    extent = buffer.shape[along] if along is not None else 1
    if ((view.offset - buffer.offset) // stick) % extent % lanes:
        return False
    d = view.dimension(stick)
    if d is not None and view.shape[d] > extent and extent % lanes:
        return False
    inside = [
        s for i, (n, s) in enumerate(zip(view.shape, view.strides, strict=True))
        if i != d and n > 1 and 0 < s < stick * extent and s >= stick
    ]  # fmt: skip
    return all(s % (stick * lanes) == 0 for s in inside)


class Restickify(NamedTuple):
    """One operand that is rearranged before an operator reads it (``ReStickifyOpHBM``)."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    have: int | None
    """Dimension that is sticked; None: one element per stick."""
    need: int | None
    """Dimension that has to be; None: one element per stick."""
    whole: bool = True
    """Whether the operand sees whole sticks as they lie; where not, it is rearranged wherever it goes."""
    bytes: int = 0
    """Device memory read and written for it."""

    @property
    def supported(self) -> bool:
        """Whether the device can: 16-bit formats only (torch-spyre#1796)."""
        return self.dtype in DLFLOAT or device_format(self.dtype).itemsize == 2


def restickify(view: Geometry, stick: int, need: int | None, readable: bool) -> Restickify:
    """The rearrangement of `view`, which lies along `stick`, so that dimension `need` is sticked."""
    wanted = SPARSE if need is None else view.strides[need]
    have = view.dimension(stick)
    written = Geometry(view.shape, _dense(view.shape), 0, view.dtype)
    target = SPARSE if need is None or wanted == 0 else written.strides[need]
    moved = view.device_bytes(stick) + written.device_bytes(target)
    return Restickify(view.shape, view.dtype, have, need, readable, moved)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def tensors(values: Any) -> list[torch.Tensor]:
    """The tensors among `values`."""
    return [v for v in values if isinstance(v, torch.Tensor)]
