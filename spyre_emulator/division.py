"""Work division over cores, and its limits (torch-spyre:docs/source/compiler/work_division_planning.md)."""

from __future__ import annotations

import math
from typing import NamedTuple

from spyre_emulator import settings
from spyre_emulator.cores import largest_divisor
from spyre_emulator.dtypes import BYTES_IN_STICK, device_format
from spyre_emulator.requirements import REDUCED, Access, Requirement
from spyre_emulator.sticks import Geometry

LX_BYTES = 2 << 20
"""Scratchpad per core."""
LX_FRONT_END = 1638.4 * 1024
"""The front end's share of it: 80 %, with ``DXP_LX_FRAC_AVAIL`` = 0.2 for the back end."""


class Division(NamedTuple):
    """How many parts each dimension of an operator's result is cut into, one part per core."""

    splits: tuple[int, ...]
    """Per dimension of the result."""
    contracted: int = 1
    """Parts of the dimension that a matmul sums over; their sums are added across cores."""

    @property
    def cores(self) -> int:
        """Cores in use."""
        return math.prod(self.splits) * self.contracted

    def of_operand(self, access: Access, operand: Geometry) -> dict[int, int]:
        """Parts of an operand, per dimension of it that is cut."""
        parts = {}
        for d, runs in enumerate(access.dims):
            if runs is not None and operand.shape[d] > 1:
                count = self.contracted if runs == REDUCED else self.splits[runs]
                if count > 1:
                    parts[d] = count
        return parts


def divide(asked: Requirement, result: Geometry, stick_dim: int | None) -> Division:
    """The division of one operator: dimensions of the result by decreasing size, each into the most parts that divide
    it and leave no core over; what a matmul sums over comes last; the sticked dimension is cut between sticks."""
    lanes = device_format(result.dtype).elements_per_stick
    sizes = [-(-n // lanes) if d == stick_dim else n for d, n in enumerate(result.shape)]
    left = settings.current.sencores
    splits = [1] * len(sizes)
    for d in sorted(range(len(sizes)), key=lambda d: -sizes[d]):
        splits[d] = largest_divisor(max(sizes[d], 1), left)
        left //= splits[d]
    inner = largest_divisor(max(-(-asked.contracted // lanes), 1), left) if asked.contracted > 1 else 1
    return Division(tuple(splits), inner)


def share(shape: Geometry, stick: int, parts: dict[int, int]) -> int:
    """Bytes per core of a tensor that is cut into `parts`, in whole sticks."""
    pieces = math.prod(parts.values())
    sticks = shape.device_bytes(stick) // BYTES_IN_STICK
    return -(-sticks // pieces) * BYTES_IN_STICK
