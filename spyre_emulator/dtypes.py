"""How PyTorch dtypes live on the device: format, bytes, elements per stick, and the host's shadow dtype.

The map follows torch-spyre's csrc/types_mapping.h: both 16-bit float types are stored as DLFloat16, int64 is
narrowed to int32, bool takes two bytes.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch

from spyre_emulator import settings

BYTES_IN_STICK = 128


class Format(NamedTuple):
    """Device representation of one dtype."""

    name: str
    """``DataFormats`` name of torch-spyre."""
    itemsize: int
    """Bytes per element on the device."""
    shadow: torch.dtype
    """Dtype of the host buffer that holds the values."""
    supported: bool = True
    """Whether the real device takes the dtype at all."""

    @property
    def elements_per_stick(self) -> int:
        return BYTES_IN_STICK // self.itemsize


FORMATS: dict[torch.dtype, Format] = {
    torch.float16: Format("SEN169_FP16", 2, torch.float32),
    torch.bfloat16: Format("SEN169_FP16", 2, torch.float32),
    torch.float32: Format("IEEE_FP32", 4, torch.float32),
    torch.int64: Format("IEEE_INT32", 4, torch.int64),
    torch.int32: Format("IEEE_INT32", 4, torch.int32),
    torch.int16: Format("SENINT16", 2, torch.int16),
    torch.int8: Format("SENINT8", 1, torch.int8),
    torch.bool: Format("SEN169_FP16", 2, torch.bool),
    torch.uint8: Format("SENUINT32", 4, torch.uint8),
    torch.float8_e4m3fn: Format("SEN143_FP8", 1, torch.float8_e4m3fn),
    torch.float8_e5m2fnuz: Format("SEN152_FP8", 1, torch.float8_e5m2fnuz),
}
DLFLOAT = frozenset({torch.float16, torch.bfloat16})
"""The dtypes whose values on the device are DLFloat16 numbers."""


def device_format(dtype: torch.dtype) -> Format:
    """The device format of `dtype`; a dtype the device lacks keeps its host form and is marked unsupported."""
    return FORMATS.get(dtype) or Format("INVALID", max(dtype.itemsize, 1), dtype, supported=False)


def shadow_dtype(dtype: torch.dtype) -> torch.dtype:
    """Dtype of the host buffer behind a device tensor of `dtype`."""
    return torch.float32 if dtype in DLFLOAT else dtype


class DowncastWarning(UserWarning):
    """int64 values are narrowed to int32 on the device."""


_warned = False


def warn_downcast() -> None:
    """Warn, once per process, that int64 is not supported on the device."""
    global _warned
    if _warned or not settings.current.downcast_warn:
        return
    _warned = True
    warnings.warn(
        "Backend Spyre does not support int64; downcasting to int32 may change values outside the 32-bit range",
        DowncastWarning,
        stacklevel=3,
    )


def reset_downcast_warning() -> None:
    """Let the next narrowing warn again."""
    global _warned
    _warned = False
