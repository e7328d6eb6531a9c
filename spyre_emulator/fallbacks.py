"""CPU fallbacks as the published stack makes them: a warning once per location, refusals where asked for."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from spyre_emulator import operators, settings

_PACKAGE = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)


class FallbackWarning(UserWarning):
    """An operator runs on the CPU instead of the device (torch_spyre.ops.fallbacks.FallbackWarning)."""


class UnsupportedError(NotImplementedError):
    """The published stack does not support this; the message carries its text."""


_warned: set[tuple[str, str, int]] = set()


def reset_warnings() -> None:
    """Let every location warn again."""
    _warned.clear()


def _location() -> tuple[str, int]:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, _TORCH)):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def warn(op: Any) -> None:
    """Warn that `op` falls back to the CPU, once per calling location; an error when strict."""
    if settings.current.strict:
        raise UnsupportedError(f"{op} would fall back to the CPU and strict mode forbids that")
    file, line = _location()
    if (str(op), file, line) in _warned:
        return
    _warned.add((str(op), file, line))
    warnings.warn_explicit(f"{op} is falling back to cpu", FallbackWarning, file, line)


def refuse_eager(op: Any) -> None:
    """Raise as PyTorch does for an operator without an eager kernel on the device."""
    name = op._schema.name + (f".{op._overloadname}" if op._overloadname != "default" else "")
    raise UnsupportedError(
        f"Could not run '{name}' with arguments from the 'spyre' backend: "
        f"{operators.why_missing(op, compiled=False)}. "
        f"SPYRE_EMULATOR_COVERAGE=permissive runs it on the CPU and counts it"
    )


def check_eager(op: Any, dtypes: tuple[torch.dtype, ...]) -> None:
    """Warn or raise for one eager execution, according to the coverage and strict settings."""
    state = operators.state_with_operands(op, dtypes, compiled=False)
    if state == operators.ENABLED:
        return
    if state == operators.FALLBACK:
        warn(op)
        return
    if settings.current.coverage == "published":
        refuse_eager(op)
    if settings.current.strict:
        warn(op)
