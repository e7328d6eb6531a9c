"""Host/device conversions of 16-bit floats and integers, as selectable profiles.

Public sources describe several behaviours that belong to different code paths and versions:

``clean`` (default)
    Finite numbers as in ``element-2026-09``; infinities and NaN survive; subnormals come back exact.
``element-2026-09``
    To the device: 10 to 9 fraction bits, round half up in magnitude, 65504 clamped to 65472; Inf becomes the number
    2^32, NaN keeps exponent 63 with its payload shifted. To the host: above 2^16 Inf, below 2^-14 a right shift that
    is off by one and halves the value (torch-spyre#4689).
``rebias-2026-04``
    The exponent is re-biased and nothing is detected: Inf arrives as 65536, NaN as 98304 (torch-spyre#1851, #1830).

bfloat16 is stored as DLFloat16 since torch-spyre PR 1605; out-of-range values saturate at 0x7FFE here, which no
public source states.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from spyre_emulator import settings
from spyre_emulator.dtypes import DLFLOAT, shadow_dtype, warn_downcast
from spyre_emulator.numerics import LARGEST, RULES, rounded

_HALF_CLAMP = 65472.0
_INT32 = torch.iinfo(torch.int32)
ConversionHook = Callable[[torch.Tensor, torch.dtype, torch.Tensor], torch.Tensor]
arriving: list[ConversionHook] = []
"""Called as ``hook(host values, dtype, device values)`` for 16-bit floats that go to the device: faults live here."""
leaving: list[ConversionHook] = []
"""Called as ``hook(device values, dtype, host values)`` for 16-bit floats that go to the host."""


def largest(dtype: torch.dtype) -> float:
    """The largest number of 16-bit `dtype` that the device receives, and that comes back finite."""
    return _HALF_CLAMP if dtype is torch.float16 else LARGEST


def to_device(host: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Shadow values of host tensor `host` as the device receives them for logical `dtype`.

    May return `host` itself where nothing changes; callers copy from the result.
    """
    if dtype in DLFLOAT:
        source = host.to(dtype)
        values = _half_to_device(source) if dtype is torch.float16 else _bfloat16_to_device(source)
        for hook in arriving:
            values = hook(source, dtype, values)
        return values
    if dtype is torch.int64:
        return narrowed(host.to(dtype))
    return host.to(shadow_dtype(dtype))


def to_host(shadow: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Host values, of logical `dtype`, of device values `shadow`."""
    if dtype not in DLFLOAT:
        return shadow
    values = _half_to_host(shadow) if dtype is torch.float16 else _bfloat16_to_host(shadow)
    for hook in leaving:
        values = hook(shadow, dtype, values)
    return values


def _bfloat16_to_host(shadow: torch.Tensor) -> torch.Tensor:
    if settings.current.bf16_to_host == "bf16-trunc":
        bits = shadow.contiguous().view(torch.int32) & -0x10000
        return bits.view(torch.float32).to(torch.bfloat16)
    return shadow.to(torch.bfloat16)


def narrowed(values: torch.Tensor) -> torch.Tensor:
    """int64 `values` as the device's int32 holds them (modulo 2^32), with the one-time warning."""
    warn_downcast()
    if values.numel() and (int(values.max()) > _INT32.max or int(values.min()) < _INT32.min):
        return values.to(torch.int32).to(torch.int64)
    return values


def _half_to_device(source: torch.Tensor) -> torch.Tensor:
    result = rounded(source, RULES["nearest-up"])
    profile = settings.current.conversion
    finite = torch.isfinite(result)
    clamped = result.clamp(-_HALF_CLAMP, _HALF_CLAMP)
    if profile == "clean":
        return torch.where(finite, clamped, result)
    special = 2.0**32 if profile == "element-2026-09" else 2.0**16
    payload = (source.contiguous().view(torch.int16).to(torch.int32) & 0x3FF) >> 1
    sign = torch.where(torch.signbit(source), -1.0, 1.0)
    return torch.where(finite, clamped, sign * special * (1 + payload.to(torch.float32) / 512))


def _bfloat16_to_device(source: torch.Tensor) -> torch.Tensor:
    result = rounded(source)
    overflow = torch.isinf(result) & ~torch.isinf(source)
    return torch.where(overflow, torch.copysign(torch.tensor(LARGEST), result), result)


def _half_to_host(shadow: torch.Tensor) -> torch.Tensor:
    profile = settings.current.conversion
    if profile == "clean":
        return shadow.to(torch.float16)
    mantissa, exponent = torch.frexp(shadow.abs())
    exponent = exponent - 1  # value = fraction * 2^exponent with 1 <= fraction < 2
    nine_bits = ((mantissa * 2 - 1) * 512).to(torch.int32)
    infinite = exponent > 15
    if profile == "rebias-2026-04":
        result = shadow.abs().to(torch.float16)
        result = torch.where(exponent < -14, 0.0, result)
        nan = (exponent == 16) & (nine_bits != 0)
    else:
        shift = (1 - (exponent + 15)).clamp(0, 15)
        subnormal = ((512 + nine_bits) >> shift).to(torch.float32) * 2.0**-24
        result = torch.where(exponent < -14, subnormal, shadow.abs()).to(torch.float16)
        nan = (exponent >= 32) & (nine_bits != 0) & (nine_bits != 511)
    result = torch.where(infinite | torch.isinf(shadow), torch.inf, result)
    result = torch.where(nan | torch.isnan(shadow), torch.nan, result)
    return torch.copysign(result, shadow).to(torch.float16)
