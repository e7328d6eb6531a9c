"""Copies to, from and on the device, counted, with the conversions of the current profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from spyre_emulator import conversions, settings
from spyre_emulator.dtypes import DLFLOAT, shadow_dtype
from spyre_emulator.memory import compress, is_reinterpreted, readable, shadow, write_bytes
from spyre_emulator.numerics import round_

Tensor = torch.Tensor
COUNTS = {"h2d": 0, "d2h": 0, "d2d": 0}
"""Transfers since import, by direction."""

TransferHook = Callable[[str, Tensor, Tensor, Callable[[], None]], None]
hooks: list[TransferHook] = []
"""Called as ``hook(direction, source, destination, proceed)`` instead of each transfer: faults live here."""

CastHook = Callable[[torch.dtype, torch.dtype, Tensor], Tensor]
cast_hooks: list[CastHook] = []
"""Called as ``hook(source dtype, destination dtype, result)`` for each cast on the device: faults live here."""


def copy_into(destination: Tensor, source: Tensor) -> None:
    """Copy `source` into `destination`, at least one of which is on the device."""
    direction = "d2d" if not source.is_cpu and not destination.is_cpu else "h2d" if source.is_cpu else "d2h"
    COUNTS[direction] += 1

    def proceed() -> None:
        _MOVES[direction](destination, source)

    call = proceed
    for hook in hooks:
        call = _hooked(hook, direction, source, destination, call)
    call()


def _hooked(
    hook: TransferHook, direction: str, source: Tensor, destination: Tensor, inner: Callable[[], None]
) -> Callable[[], None]:
    return lambda: hook(direction, source, destination, inner)


def _host_to_device(destination: Tensor, source: Tensor) -> None:
    if write_bytes(destination, source):
        return
    if is_reinterpreted(destination):
        raise RuntimeError(f"spyre: copy into a view of another dtype ({destination.dtype}) is not supported")
    if settings.current.compressed_weights and compress(destination, source):
        return
    shadow(destination).copy_(conversions.to_device(source, destination.dtype))


def _device_to_host(destination: Tensor, source: Tensor) -> None:
    destination.copy_(conversions.to_host(readable(source), source.dtype))


def _on_device(destination: Tensor, source: Tensor) -> None:
    if is_reinterpreted(destination):
        raise RuntimeError(f"spyre: copy into a view of another dtype ({destination.dtype}) is not supported")
    host = shadow(destination)
    host.copy_(cast(readable(source), source.dtype, destination.dtype))


_MOVES = {"h2d": _host_to_device, "d2h": _device_to_host, "d2d": _on_device}


def cast(host: Tensor, source: torch.dtype, destination: torch.dtype) -> Tensor:
    """Shadow values of a cast on the device; `host` itself where the values stay the same."""
    if destination in DLFLOAT:
        if source in DLFLOAT:
            return host
        return round_(host.to(torch.float32, copy=True))
    return host.to(shadow_dtype(destination))


def to_copy(self: Any, host: Tensor, dtype: torch.dtype, memory_format: torch.memory_format | None) -> Tensor:
    """A new shadow with the values of `host`, cast on the device from ``self.dtype`` to `dtype`."""
    keep = memory_format or torch.preserve_format
    result = host.to(shadow_dtype(dtype), copy=True, memory_format=keep)
    if dtype in DLFLOAT and self.dtype not in DLFLOAT:
        round_(result)
    for hook in cast_hooks:
        result = hook(self.dtype, dtype, result)
    return result
