"""The debug switch ``nan_padding``: what operators make of padding lanes that hold NaN.

On the device an operator reads whole sticks, and masks the lanes behind a row's end where they could reach its result
(``coordinateMasking_``). With the switch on, each kernel that names how it reads (`Kernel.reads`) runs a second time on
operands in whole sticks, whose lanes hold NaN except where the device's mask has been; a NaN that reaches a logical
element of that result is put into the kernel's own result. So a right kernel keeps its numbers bit for bit, and one
without its mask is caught. Hooks see operands that lie in such memory, `whole_sticks` of which shows the lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from spyre_emulator import layout
from spyre_emulator.dtypes import device_format

Tensor = torch.Tensor
Dtypes = Sequence[torch.dtype | None]
Operands = tuple[Any, ...]
Reader = Callable[[Operands, Dtypes], Operands | None]
"""From a kernel's arguments on shadows to those in whole sticks, masked; None where no stick is partial."""

MASKS: dict[str, float] = {
    "sum": 0.0,
    "mean": 0.0,
    "prod": 1.0,
    "amax": -math.inf,
    "amin": math.inf,
    "softmax": -math.inf,
    "norm": 0.0,
    "matmul": 0.0,
    "attention": -math.inf,
}
"""What the device writes into padding lanes before an operator of this class reads them."""


_STICKS = "spyre_sticks"
"""Attribute of an operand that lies in padded memory."""


def lanes_of(dtype: torch.dtype | None) -> int:
    """Elements per stick of a logical dtype."""
    return device_format(dtype or torch.float16).elements_per_stick


def padded(x: Tensor, dim: int, lanes: int) -> Tensor:
    """A copy of float `x` with dimension `dim` in whole sticks, its padding lanes NaN."""
    dim %= x.dim()
    width = x.shape[dim]
    shape = [*x.shape]
    shape[dim] = -(-width // lanes) * lanes
    image = x.new_full(shape, math.nan)
    image.narrow(dim, 0, width).copy_(x)
    return image


def masked(image: Tensor, dim: int, width: int, kind: str) -> Tensor:
    """`image` with the lanes of `dim` behind `width` replaced by the mask of operators of class `kind`."""
    value = MASKS.get(kind)
    if value is not None:
        image.narrow(dim, width, image.shape[dim] - width).fill_(value)
    return image


def is_partial(x: Any, dim: int, lanes: int) -> bool:
    """Whether `x` is a float tensor whose dimension `dim` ends inside a stick."""
    return (
        isinstance(x, Tensor)
        and x.dim() >= -dim
        and x.numel() > 0
        and x.is_floating_point()
        and x.shape[dim] % lanes > 0
    )


def held(x: Any, dtype: torch.dtype | None) -> Any:
    """Float tensor `x` as a view of memory whose rows are whole sticks with NaN behind their end."""
    lanes = lanes_of(dtype)
    if not is_partial(x, -1, lanes) or x.dtype.itemsize < 4:
        return x
    image = padded(x, -1, lanes)
    view = image[..., : x.shape[-1]]
    setattr(view, _STICKS, image)
    return view


def whole_sticks(x: Tensor, dtype: torch.dtype = torch.float16) -> Tensor:
    """Operand `x` of a hook with its padding lanes, unmasked: what a kernel reads that reads whole sticks."""
    image: Tensor | None = getattr(x, _STICKS, None)
    return layout.padded_to_sticks(x, dtype) if image is None else image


def over_dimensions(kind: str) -> Reader:
    """The reader of an operator ``(x, dims, ...)`` that combines elements along `dims`; all of them by default."""

    def read(args: Operands, dtypes: Dtypes) -> Operands | None:
        x, lanes = args[0], lanes_of(dtypes[0])
        if not is_partial(x, -1, lanes):
            return None
        dims = args[1] if len(args) > 1 and args[1] is not None and args[1] != [] else list(range(x.dim()))
        combined = [d % x.dim() for d in ([dims] if isinstance(dims, int) else dims)]
        image = padded(x, -1, lanes)
        if x.dim() - 1 in combined:
            masked(image, -1, x.shape[-1], kind)
        return (image, *args[1:])

    return read


def last_dimension(kind: str) -> Reader:
    """The reader of a norm: operand, weight and bias in whole sticks of the last dimension, the operand masked."""

    def read(args: Operands, dtypes: Dtypes) -> Operands | None:
        lanes, width = lanes_of(dtypes[0]), args[0].shape[-1] if args[0].dim() else 0
        if not is_partial(args[0], -1, lanes):
            return None

        def image(a: Any) -> Any:
            if isinstance(a, list):  # normalized_shape
                return [*a[:-1], -(-width // lanes) * lanes]
            return padded(a, -1, lanes) if is_partial(a, -1, lanes) and a.shape[-1] == width else a

        return (masked(image(args[0]), -1, width, kind), *map(image, args[1:]))

    return read


def product(position: int) -> Reader:
    """The reader of a matmul with its factors at `position` and behind it: k in whole sticks, zero on both sides."""

    def read(args: Operands, dtypes: Dtypes) -> Operands | None:
        a, b = args[position], args[position + 1]
        lanes, inner = lanes_of(dtypes[position]), a.shape[-1]
        if b.dtype is torch.int16 or not is_partial(a, -1, lanes):
            return None
        left = masked(padded(a, -1, lanes), -1, inner, "matmul")
        right = masked(padded(b, -2, lanes), -2, inner, "matmul")
        return (*args[:position], left, right, *args[position + 2 :])

    return read


def attention(args: Operands, dtypes: Dtypes) -> Operands | None:
    """The reader of fused attention: keys and values in whole tiles along the length, scores behind it masked."""
    query, key, value, *rest = args
    lanes, length = lanes_of(dtypes[1]), key.shape[-2]
    if not is_partial(key, -2, lanes) or query.numel() == 0:
        return None
    tiles = -(-length // lanes) * lanes
    bias = rest[0] if rest else None
    bias = query.new_zeros((query.shape[-2], length)) if bias is None else bias.expand(*bias.shape[:-1], length)
    if len(rest) > 2 and rest[2]:
        bias = bias.masked_fill(torch.ones(query.shape[-2], length, dtype=torch.bool, device="cpu").triu(1), -math.inf)
    scores = masked(padded(bias, -1, lanes), -1, length, "attention")
    images = [masked(padded(x, -2, lanes), -2, length, "matmul") for x in (key, value)]
    assert scores.shape[-1] == tiles
    causal = (False,) if len(rest) > 2 else ()
    return (query, *images, scores, *rest[1:2], *causal, *rest[3:])


def poisoned(result: Any, probe: Any) -> Any:
    """`result` with NaN where `probe`, cut to its shape, has NaN and it has none."""
    if isinstance(result, (tuple, list)):
        return type(result)([poisoned(r, p) for r, p in zip(result, probe, strict=True)])
    if not isinstance(result, Tensor) or not result.is_floating_point() or result.dim() != probe.dim():
        return result
    for d, n in enumerate(result.shape):
        probe = probe.narrow(d, 0, n)
    leaked = probe.isnan() & ~result.isnan()
    return result.masked_fill(leaked, math.nan) if bool(leaked.any()) else result
