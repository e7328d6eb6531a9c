"""The settings of the emulated device: one frozen record, its current value, and where it is read from."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Literal, get_args

Rounding = Literal["nearest-even", "nearest-up", "truncate"]
Coverage = Literal["permissive", "published"]
LaunchMode = Literal["prepared", "graph"]
Conversion = Literal["clean", "element-2026-09", "rebias-2026-04"]
Bf16ToHost = Literal["bf16-rne", "bf16-trunc"]


class SettingError(ValueError):
    """A setting has a value that the emulator does not know."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that acts on results or refusals, except faults."""

    rounding: Rounding = "nearest-up"
    """Rule by which results become DLFloat16. The device's is not public; the DLFloat paper simplifies the modes."""
    masked_exponential: float = 0.0
    """What softmax takes for exp(-Inf). The device leaks about 2e-5 per position (hf-adapters findings)."""
    conversion: Conversion = "clean"
    """Host/device conversion of float16: see `spyre_emulator.conversions`."""
    bf16_to_host: Bf16ToHost = "bf16-rne"
    """Conversion to bfloat16 on the host: rounded since torch-spyre PR 2524, truncated before (#2478)."""
    coverage: Coverage = "permissive"
    """``permissive`` runs what the published stack lacks and books it; ``published`` raises as it does."""
    strict: bool = False
    """CPU fallbacks are errors."""
    native_kernel: bool = True
    """Use the C kernel where it was built; otherwise the bit-identical torch form."""
    nan_padding: bool = False
    """Debug switch: padding lanes of sticks hold NaN instead of whatever was there."""
    compressed_weights: bool = False
    """Keep large 16-bit tensors that arrive from the host as codes of two bytes, decoded when read."""
    launch: LaunchMode = "prepared"
    """How a compiled plan is launched: prepared once, or its graph built on the data path each call."""
    sencores: int = 32
    """Cores in use, 1 to 32 (``SENCORES``)."""
    downcast_warn: bool = True
    """Warn once when int64 is narrowed to int32 (``TORCH_SPYRE_DOWNCAST_WARN``)."""
    device_memory: int = 128 << 30
    """Device memory in bytes."""
    intermediates_pool: int = 14 << 30
    """Bytes a compiled plan may use for intermediates: a segment of 16 GiB with 2 GiB reserved."""
    lx_bytes: int = 2 << 20
    """Scratchpad per core in bytes."""
    lx_back_end_share: float = 0.2
    """Share of the scratchpad that the back end keeps (``DXP_LX_FRAC_AVAIL``)."""
    lx_planning: bool = True
    """Plan the scratchpads (``LX_PLANNING``)."""
    hbm_pool_planning: bool = True
    """Plan the pool of intermediates (``HBM_POOL_PLANNING``); without it each has an allocation of its own."""


def _boolean(text: str) -> bool:
    return text.strip().lower() not in ("", "0", "false", "off", "no")


def _checked(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise SettingError(f"{name}={value!r}: must be one of {', '.join(allowed)}")
    return value


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _cores(text: str) -> int:
    if not _is_number(text) or not 1 <= int(text) <= 32:
        raise SettingError(f"SENCORES={text!r}: must be a number from 1 to 32")
    return int(text)


_CHOICES = {
    "SPYRE_EMULATOR_ROUNDING": ("rounding", get_args(Rounding)),
    "SPYRE_EMULATOR_CONVERSION": ("conversion", get_args(Conversion)),
    "SPYRE_EMULATOR_BF16_TO_HOST": ("bf16_to_host", get_args(Bf16ToHost)),
    "SPYRE_EMULATOR_COVERAGE": ("coverage", get_args(Coverage)),
    "SPYRE_EMULATOR_LAUNCH": ("launch", get_args(LaunchMode)),
}
_SWITCHES = {
    "SPYRE_EMULATOR_STRICT": "strict",
    "SPYRE_EMULATOR_C_KERNEL": "native_kernel",
    "SPYRE_EMULATOR_NAN_PADDING": "nan_padding",
    "SPYRE_EMULATOR_COMPRESSED_WEIGHTS": "compressed_weights",
    "TORCH_SPYRE_DOWNCAST_WARN": "downcast_warn",
    "LX_PLANNING": "lx_planning",
    "HBM_POOL_PLANNING": "hbm_pool_planning",
}
_SIZES = {
    "SPYRE_EMULATOR_DEVICE_MEMORY": "device_memory",
    "SPYRE_EMULATOR_INTERMEDIATES_POOL": "intermediates_pool",
    "SPYRE_EMULATOR_LX_BYTES": "lx_bytes",
}


def _size(name: str, text: str) -> int:
    if not _is_number(text):
        raise SettingError(f"{name}={text!r}: must be a number of bytes")
    return int(text)


def _share(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise SettingError(f"{name}={text!r}: must be a number from 0 to 1")
    return value


def from_environment(environment: Mapping[str, str]) -> Settings:
    """The settings that `environment` asks for; SettingError names the variable and its allowed values."""
    values: dict[str, object] = {}
    for name, (field, allowed) in _CHOICES.items():
        if name in environment:
            values[field] = _checked(name, environment[name], allowed)
    for name, field in _SWITCHES.items():
        if name in environment:
            values[field] = _boolean(environment[name])
    for name, field in _SIZES.items():
        if name in environment:
            values[field] = _size(name, environment[name])
    if "SENCORES" in environment:
        values["sencores"] = _cores(environment["SENCORES"])
    if "DXP_LX_FRAC_AVAIL" in environment:
        values["lx_back_end_share"] = _share("DXP_LX_FRAC_AVAIL", environment["DXP_LX_FRAC_AVAIL"])
    return Settings(**values)  # type: ignore[arg-type]


current: Settings = from_environment(os.environ)
generation = 0
"""Grows with each change, so that what was derived from settings knows when it is stale."""


def change(**values: object) -> None:
    """Replace fields of the current settings."""
    global current, generation
    current = dataclasses.replace(current, **values)  # type: ignore[arg-type]
    generation += 1


@contextlib.contextmanager
def using(**values: object) -> Iterator[Settings]:
    """The current settings with `values` replaced, inside the context."""
    global current, generation
    before = current
    change(**values)
    try:
        yield current
    finally:
        current = before
        generation += 1
