"""The cores of a card: how many share sticks, and what one of them can address."""

from __future__ import annotations

import functools

from spyre_emulator import settings

SPAN_LIMIT = 256 << 20
"""Bytes one core can address of one operand (EAR; torch-spyre:docs/source/compiler/work_division_planning.md)."""


def cores_for(sticks: int) -> int:
    """Cores that share `sticks` evenly: the largest divisor that is no more than ``SENCORES``."""
    return largest_divisor(max(sticks, 1), settings.current.sencores)


@functools.lru_cache(maxsize=4096)
def largest_divisor(sticks: int, cores: int) -> int:
    """The largest divisor of `sticks` that is at most `cores`."""
    return next(c for c in range(min(cores, sticks), 0, -1) if sticks % c == 0)
