"""Tensors with the shape, strides and offset of another one, and values of one's own."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def saturated(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return float values in ``dtype``; finite ones beyond its range become its largest, as masks of
    ``finfo.min`` mean it."""
    if values.dtype == dtype or not (values.dtype.is_floating_point and dtype.is_floating_point):
        return values.to(dtype)
    return clamped(values, dtype).to(dtype)


def clamped(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return float values with the finite ones limited to the range of ``dtype``."""
    limit = torch.finfo(dtype).max
    if not values.dtype.is_floating_point or torch.finfo(values.dtype).max <= limit:
        return values
    least, most = torch.aminmax(values) if values.numel() else (values.sum(), values.sum())
    if bool(least >= -limit) and bool(most <= limit):
        return values
    return torch.where(values.isfinite(), values.clamp(-limit, limit), values)


def plain(tensor: Tensor) -> bool:
    """Whether a tensor begins its storage and is contiguous."""
    return tensor.storage_offset() == 0 and tensor.is_contiguous()


def like(own: Tensor, values: Tensor) -> Tensor:
    """Return ``values`` (on the CPU) in the dtype, device, strides and storage offset of ``own``.

    Where strides of zero or overlapping ones make several elements share a place, they share it here too.
    """
    values = saturated(values, own.dtype)
    if plain(own):
        return values.contiguous().to(own.device)
    extent = own.storage_offset() + _extent(own)
    flat = torch.zeros(extent, dtype=own.dtype)
    target = flat.as_strided(own.shape, own.stride(), own.storage_offset())
    first = tuple(slice(0, 1) if step == 0 and size > 1 else slice(None) for size, step in _axes(own))
    target[first].copy_(values[first])
    return flat.to(own.device).as_strided(own.shape, own.stride(), own.storage_offset())


def on_host(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a copy on the CPU with the same strides and offset; floats in ``dtype`` where one is given."""
    values = tensor.detach().cpu()
    if dtype is not None and values.is_floating_point():
        values = values.to(dtype)
    elif tensor.device.type == "cpu":
        values = values.clone()
    if values.stride() == tensor.stride() and values.storage_offset() == tensor.storage_offset():
        return values
    flat = torch.empty(tensor.storage_offset() + _extent(tensor), dtype=values.dtype)
    return like(flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()), values)


def _axes(tensor: Tensor) -> list[tuple[int, int]]:
    return list(zip(tensor.shape, tensor.stride(), strict=True))


def _extent(tensor: Tensor) -> int:
    """Elements of storage from the first to the last element."""
    if not tensor.numel():
        return 0
    return 1 + sum((size - 1) * step for size, step in _axes(tensor))
