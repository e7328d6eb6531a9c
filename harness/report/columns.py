"""Columns of numbers as text: base64 of little-endian float32, four bytes each, decoded at once by a page."""

from __future__ import annotations

import base64
import sys
from array import array


def column_text(numbers: array[float]) -> str:
    """The numbers as text; seven significant digits are what a chart needs."""
    short = array("f", numbers)
    if sys.byteorder == "big":
        short.byteswap()
    return base64.b64encode(short).decode()


def column_of(text: str) -> array[float]:
    """The numbers of `column_text`."""
    short = array("f", base64.b64decode(text))
    if sys.byteorder == "big":
        short.byteswap()
    return array("d", short)
