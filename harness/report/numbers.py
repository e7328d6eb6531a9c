"""Numbers for people and for strict JSON: NaN and infinities are values of their own."""

from __future__ import annotations

import json
import math
from typing import Any


def json_number(value: float | None, digits: int = 17) -> float | int | str | None:
    """The value for strict JSON: NaN and infinities as the strings that `harness.records` uses."""
    if value is None or isinstance(value, int):
        return value
    if math.isfinite(value):
        rounded = float(f"{value:.{digits}g}") if digits < 17 else value
        return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def strict(value: Any) -> Any:
    """A tree of plain values with every NaN and infinity replaced by its string."""
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value


def dumps(value: Any, indent: int | None = None) -> str:
    """Strict ASCII JSON without ``<`` and ``&``: safe inside any HTML or script.

    Raises ValueError for a NaN or infinity that `strict` has not replaced.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, allow_nan=False, separators=separators, indent=indent)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def readable(value: float | None, unit: str = "") -> str:
    """The value to three significant digits with its unit; an en dash where it is undefined."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.2e}{unit}"
    text = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{text}{unit}"


def percent(share: float | None) -> str:
    """A share as a percentage that never rounds up to 100 nor down to 0."""
    if share is None:
        return "–"
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1:
        return ">99.9 %"
    return f"{share * 100:.3g} %"


def duration(seconds: float) -> str:
    """``0.42 s``, ``3 m 20 s`` or ``2 h 5 m``."""
    if seconds < 60:
        return f"{readable(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    return f"{minutes // 60} h {minutes % 60} m"
