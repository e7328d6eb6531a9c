"""The tiled device layout of a tensor: sticks of 128 bytes, `device_size`, `stride_map`, padding.

After torch-spyre's docs/source/user_guide/tensors_and_layouts.md: the last device dimension is the stick; a tensor of
rank n has device_size [d1, ..., d(n-2), ceil(d(n-1)/eps), d0, eps], which agrees with every published example.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch

from spyre_emulator import settings
from spyre_emulator.dtypes import BYTES_IN_STICK, device_format

SYNTHETIC = -1
"""Entry of a stride map for a device dimension that has no host dimension."""


class SpyreTensorLayout(NamedTuple):
    """Where the elements of one host tensor lie in device memory."""

    device_size: tuple[int, ...]
    """Elements per device dimension, the stick last; device strides are row-major."""
    stride_map: tuple[int, ...]
    """Host stride of each device dimension in elements: host_offset = dot(device_coords, stride_map)."""
    device_dtype: str
    """``DataFormats`` name."""
    element_arrangement: str = "STANDARD"

    @property
    def elements(self) -> int:
        """Elements including padding lanes."""
        return math.prod(self.device_size)


@functools.lru_cache(maxsize=8192)
def default_layout(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> SpyreTensorLayout:
    """The layout the device gives a fresh tensor; the stick runs along the last host dimension."""
    form = device_format(dtype)
    stick = form.elements_per_stick
    if not shape:
        return SpyreTensorLayout((1, stick), (SYNTHETIC, SYNTHETIC), form.name)
    tiles = math.ceil(shape[-1] / stick)
    inner_stride = strides[-1]
    tile_stride = stick * inner_stride
    if len(shape) == 1:
        return SpyreTensorLayout((tiles, stick), (tile_stride, inner_stride), form.name)
    size = (*shape[1:-1], tiles, shape[0], stick)
    stride_map = (*strides[1:-1], tile_stride, strides[0], inner_stride)
    return SpyreTensorLayout(size, stride_map, form.name)


@functools.lru_cache(maxsize=65536)
def device_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes on the device of a tensor of `shape`, padding lanes included; a scalar takes one stick."""
    if not shape:
        return BYTES_IN_STICK
    sticks_per_row = -(-shape[-1] * device_format(dtype).itemsize // BYTES_IN_STICK)
    return math.prod(shape[:-1]) * sticks_per_row * BYTES_IN_STICK


def padded_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes of padding lanes in a tensor of `shape`."""
    return device_bytes(shape, dtype) - math.prod(shape) * device_format(dtype).itemsize


def padded_to_sticks(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Shadow `x` with its last dimension in whole sticks, as the device holds it.

    What stands in the padding lanes is undefined on the device; here it is a stale value, or NaN with the debug
    switch ``nan_padding``, so that a kernel that reads them without a mask is caught.
    """
    width = x.shape[-1]
    stick = device_format(dtype).elements_per_stick
    lanes = -(-width // stick) * stick
    if lanes == width:
        return x.contiguous()
    result = x.new_full((*x.shape[:-1], lanes), math.nan if settings.current.nan_padding else _STALE)
    result[..., :width] = x
    return result


_STALE = 1.0
"""Any finite number: uninitialised device memory holds what was there before."""


def mask_padding(padded: torch.Tensor, width: int, value: float) -> torch.Tensor:
    """`padded` with the lanes from `width` on replaced by `value`: the device's ``coordinateMasking_``."""
    padded[..., width:] = value
    return padded


def device_image(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Shadow `x` of rank one or more in device order, shape ``device_size`` of its default layout, padding included."""
    stick = device_format(dtype).elements_per_stick
    padded = padded_to_sticks(x, dtype)
    tiled = padded.view(*padded.shape[:-1], padded.shape[-1] // stick, stick)
    if x.dim() == 1:
        return tiled
    return tiled.permute(*range(1, x.dim() - 1), x.dim() - 1, 0, x.dim()).contiguous()
