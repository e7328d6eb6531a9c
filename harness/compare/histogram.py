"""Quantiles of error magnitudes from counts on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SHIFT = 19
"""Bits of a float32 below the bin number: 16 bins to the octave, each at most 6.25 % wide."""
BINS = 1 << (31 - SHIFT)


class LogHistogram:
    """Counts of non-negative float32 values by exponent and four leading fraction bits."""

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, np.int64)

    def add(self, values: NDArray[np.float32]) -> None:
        """Count each value; none may be negative or NaN."""
        self.counts += np.bincount(values.view(np.int32) >> SHIFT, minlength=BINS)

    def quantiles(self, shares: Sequence[float], largest: float) -> tuple[float, ...]:
        """Return the value below which each share of the values lies, exact to one bin width."""
        total = int(self.counts.sum())
        if not total:
            return ()
        cumulative = np.cumsum(self.counts)
        return tuple(min(self._at(share * total, cumulative), largest) for share in shares)

    def _at(self, rank: float, cumulative: NDArray[np.int64]) -> float:
        """Return the value at a rank, interpolated within its bin."""
        index = int(np.searchsorted(cumulative, rank))
        index = min(index, int(np.flatnonzero(self.counts)[-1]))
        if index == 0:
            return 0.0
        edges = np.array([index, index + 1], np.int32) << SHIFT
        low, high = (float(edge) for edge in edges.view(np.float32))
        inside = self.counts[index]
        part = (rank - float(cumulative[index] - inside)) / float(inside) if inside else 0.0
        return low + (high - low) * min(max(part, 0.0), 1.0)
