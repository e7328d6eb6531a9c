"""Work division over cores, and the limits it runs into."""

from __future__ import annotations

import functools

from spyre_emulator import settings

SPAN_LIMIT = 256 << 20
"""Bytes one core can address of one operand (EAR)."""
LX_BYTES = 2 << 20
"""Scratchpad per core."""
LX_FRONT_END = 1638.4 * 1024
"""The front end's share of the scratchpad: 80 %, with ``DXP_LX_FRAC_AVAIL`` = 0.2 for the back end."""


def cores_for(sticks: int) -> int:
    """Cores that share `sticks` evenly: the largest divisor that is no more than ``SENCORES``."""
    return _largest_divisor(max(sticks, 1), settings.current.sencores)


@functools.lru_cache(maxsize=4096)
def _largest_divisor(sticks: int, cores: int) -> int:
    return next(c for c in range(min(cores, sticks), 0, -1) if sticks % c == 0)
