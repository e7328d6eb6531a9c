"""Sums, extremes and counts over the blocks of a pair, and the numbers that follow from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from harness.compare.formats import NumberFormat
from harness.compare.kernel import KERNEL, Kernel
from harness.compare.measure import Floats, Measures, Meter, Probe
from harness.records import PairNumbers

Locate = Callable[[int | None], tuple[int, ...] | None]

ZERO = 1e-14
"""Share of a sum of squares below which float64 sums cannot tell it from zero."""


class PairTotals:
    """What one side's blocks add up to."""

    def __init__(self, number_format: NumberFormat, probe: Probe, kernel: Kernel | None = KERNEL) -> None:
        self._meter = Meter(number_format, probe, kernel)
        self._epsilon = number_format.epsilon
        self._count = 0
        self._unequal = 0
        self._mismatches = 0
        self._sums = np.zeros(6)
        self._max_abs = -1.0
        self._max_at: int | None = None
        self._max_ulp = 0.0
        self._needed = 0.0
        self._lost = self._made = self._changed = self._nan_matches = 0
        self._nonfinite_at: int | None = None

    def add(self, reference: Floats, side: Floats, start: int) -> Measures | None:
        """Add a block that begins at a flat position; None, with nothing added, if not all is finite."""
        measures = self._meter.add(reference, side)
        if measures is not None:
            self._keep(measures, start + measures.worst)
        return measures

    def _keep(self, measures: Measures, worst: int) -> None:
        """Add what a block says; its largest error is at the flat position ``worst``."""
        self._count += measures.size
        self._unequal += measures.unequal
        self._mismatches += measures.mismatches
        self._sums += measures.sums
        self._max_ulp = max(self._max_ulp, measures.max_ulp)
        self._needed = max(self._needed, measures.needed)
        if measures.max_abs > self._max_abs:
            self._max_abs, self._max_at = measures.max_abs, worst

    def add_any(self, reference: Floats, side: Floats, at: NDArray[np.int64]) -> None:
        """Add pairs of any values at the flat positions ``at``: classify the non-finite, add the rest."""
        there, here = np.isfinite(reference), np.isfinite(side)
        both_nan = np.isnan(reference) & np.isnan(side)
        changed = ~there & ~here & ~both_nan & (reference != side)
        self._lost += int((~there & here).sum())
        self._made += int((there & ~here).sum())
        self._changed += int(changed.sum())
        self._nan_matches += int(both_nan.sum())
        disagree = (there != here) | changed
        if self._nonfinite_at is None and disagree.any():
            self._nonfinite_at = int(at[disagree.argmax()])
        finite = there & here
        if finite.any():
            pairs = reference[finite].astype(np.float64), side[finite].astype(np.float64)
            measures = self._meter.add(*pairs)
            if measures is not None:
                self._keep(measures, int(at[finite][measures.worst]))

    def record(self, quantiles: Sequence[float], locate: Locate) -> PairNumbers:
        """Return the numbers; ``locate`` turns a flat position into an index."""
        found = PairNumbers(
            finite_pairs=self._count,
            nonfinite_mismatches=self._lost + self._made + self._changed,
            nonfinite_lost=self._lost,
            nonfinite_made=self._made,
            nonfinite_changed=self._changed,
            nonfinite_first=locate(self._nonfinite_at),
            nan_matches=self._nan_matches,
        )
        if not self._count:
            return found
        median, p99 = self._meter.ulps.quantiles((0.5, 0.99), self._max_ulp)
        return found.model_copy(
            update={
                "max_abs": self._max_abs,
                "max_abs_index": locate(self._max_at),
                "unequal": self._unequal,
                "mismatches": self._mismatches,
                "ulp_median": median / self._epsilon,
                "ulp_p99": p99 / self._epsilon,
                "ulp_max": self._max_ulp / self._epsilon,
                "abs_quantiles": self._meter.errors.quantiles(quantiles, self._max_abs),
                "minimum_tolerance": self._needed,
                **self._relations(),
            }
        )

    def _relations(self) -> dict[str, float | None]:
        """Return the numbers that follow from sums; None where a denominator is zero."""
        n = self._count
        sum_y, yy, sum_d, sum_a, dd, yd = (float(total) for total in self._sums)
        xx, xy = max(yy + 2 * yd + dd, 0.0), yy + yd
        mean_y, mean_x = sum_y / n, (sum_y + sum_d) / n
        variance_y, variance_x = yy / n - mean_y**2, xx / n - mean_x**2
        covariance = xy / n - mean_y * mean_x
        spread_y, spread_x = variance_y > ZERO * yy / n, variance_x > ZERO * (xx + yy) / n
        scale = covariance / variance_y if spread_y else None
        pearson = cosine = None
        if spread_y and spread_x:
            pearson = _clamp(covariance / (math.sqrt(variance_y) * math.sqrt(variance_x)))
        if yy > 0 and xx > ZERO * yy:
            cosine = _clamp(xy / (math.sqrt(xx) * math.sqrt(yy)))
        return {
            "mean_abs": sum_a / n,
            "rms": math.sqrt(dd / n),
            "relative_l2": math.sqrt(dd / yy) if yy > 0 else None,
            "cosine": cosine,
            "pearson": pearson,
            "scale": scale,
            "offset": None if scale is None else mean_x - scale * mean_y,
        }


def _clamp(value: float) -> float:
    """Return a correlation without the rounding that carries it past one."""
    return max(-1.0, min(1.0, value))
