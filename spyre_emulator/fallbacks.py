"""CPU fallbacks as the published stack makes them: a warning once per location, refusals where asked for."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from spyre_emulator import constraints, operators, private, settings

_PACKAGE = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)


class FallbackWarning(UserWarning):
    """An operator runs on the CPU instead of the device (torch_spyre.ops.fallbacks.FallbackWarning)."""


class UnsupportedError(NotImplementedError):
    """The published stack does not support this; the message carries its text."""


UnsupportedError.__name__ = UnsupportedError.__qualname__ = "Unsupported"  # the stack's name, part of its messages


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


def unsupported(what: str) -> str:
    """The stack's sentence about something it does not support."""
    return f"Spyre backend does not support: {what}"


def refuse_eager(op: Any) -> None:
    """Raise as PyTorch does for an operator without an eager kernel on the device."""
    name = op._schema.name + (f".{op._overloadname}" if op._overloadname != "default" else "")
    raise UnsupportedError(
        f"Could not run '{name}' with arguments from the 'spyre' backend: "
        f"{operators.why_missing(op, compiled=False)}. "
        f"SPYRE_EMULATOR_COVERAGE=permissive runs it on the CPU and counts it"
    )


def check_eager(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Warn or raise for one eager execution, according to the coverage and strict settings."""
    state = operators.state_of(op, compiled=False)
    if state == operators.FALLBACK:
        warn(op)
        return
    published = settings.current.coverage == "published"
    if state == operators.MISSING:
        if published:
            refuse_eager(op)
        if settings.current.strict:
            warn(op)
        return
    what = refusal(op, args, kwargs)
    if what is not None and published:
        raise private.inductor_error(UnsupportedError(unsupported(what)))
    if what is not None and settings.current.strict:
        warn(op)


def refusal(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """What the stack would not support about a call of an operator that it has; None when nothing."""
    geometry = geometry_of((*args, *kwargs.values()))
    return (
        constraints.refused_operands(op, geometry)
        or constraints.refused_arguments(op, args, kwargs)
        or constraints.failed_span(op, geometry)
    )


def geometry_of(args: tuple[Any, ...]) -> tuple[constraints.Geometry, ...]:
    """Shape and dtype of the tensors among `args`, one level of lists deep."""
    found: list[constraints.Geometry] = []
    for a in args:
        for item in a if isinstance(a, (list, tuple)) else (a,):
            if isinstance(item, torch.Tensor):
                found.append((tuple(item.shape), item.dtype))
    return tuple(found)
