"""Sums, extremes and counts over pairs of blocks, and the numbers that follow from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.compare.formats import NumberFormat
from harness.compare.histogram import LogHistogram
from harness.records import PairNumbers

Floats = NDArray[np.floating]
Locate = Callable[[int | None], tuple[int, ...] | None]

ZERO = 1e-14
"""Share of a sum of squares below which float64 sums cannot tell it from zero."""
EXPONENT = 0x7F800000
"""Exponent bits of a float32."""


@dataclass(frozen=True)
class Probe:
    """Tolerance at which mismatching elements are counted."""

    atol: float
    rtol: float


class ReferenceBlock:
    """A block of the reference and what follows from it alone."""

    def __init__(self, values: Floats) -> None:
        self.values = values
        self.wide = values.astype(np.float64)
        self.sum = float(self.wide.sum())
        self.squares = float(np.dot(self.wide, self.wide))
        """Not finite when an element is not."""
        self.magnitude = np.abs(values)
        self.largest = float(self.magnitude.max())
        self.denominator = self.magnitude + values.dtype.type(1)
        self._inverse: tuple[float, NDArray[np.float32]] | None = None

    def inverse_binade(self, smallest: float) -> NDArray[np.float32]:
        """Return ``2**-e`` per element, where ``2**e <= max(|value|, smallest) < 2**(e+1)``."""
        if self._inverse is None or self._inverse[0] != smallest:
            clamped = np.maximum(self.magnitude, self.magnitude.dtype.type(smallest)).astype(np.float32)
            bits = clamped.view(np.int32)
            np.bitwise_and(bits, EXPONENT, out=bits)
            np.subtract(254 << 23, bits, out=bits)
            if self.largest >= 2.0**127:
                bits[bits == 0] = 1 << 22  # 2**-127 is no normal float32
            self._inverse = (smallest, clamped)
        return self._inverse[1]


class PairTotals:
    """What one side's blocks add up to."""

    def __init__(self, number_format: NumberFormat, capacity: int, probe: Probe) -> None:
        self._format = number_format
        self._probe = probe
        self._errors = LogHistogram(capacity)
        self._ulps = LogHistogram(capacity)
        self._count = 0
        self._unequal = 0
        self._mismatches = 0
        self._sums = np.zeros(6)
        """Of reference, reference squared, difference, |difference|, difference squared, product."""
        self._max_abs = -1.0
        self._max_at: int | None = None
        self._max_ulp = 0.0
        self._needed = 0.0
        self._lost = self._made = self._changed = self._nan_matches = 0
        self._nonfinite_at: int | None = None
        self.last_largest = 0.0
        """Largest difference in the block added last."""

    def add(self, reference: ReferenceBlock, values: Floats, start: int, at: NDArray[np.int64] | None = None) -> bool:
        """Add a block of finite pairs; return False, with nothing added, if a pair is not finite."""
        difference = np.subtract(values, reference.values)
        wide = difference.astype(np.float64)
        squares = float(np.dot(wide, wide))
        if not math.isfinite(squares):
            return False
        product = float(np.dot(wide, reference.wide))
        total = float(wide.sum())
        np.abs(wide, out=wide)
        self._sums += (reference.sum, reference.squares, total, float(wide.sum()), squares, product)
        self._count += difference.size
        self._unequal += int(np.count_nonzero(difference != 0))
        self._add_magnitudes(reference, np.abs(difference), start, at)
        return True

    def _add_magnitudes(
        self, reference: ReferenceBlock, errors: Floats, start: int, at: NDArray[np.int64] | None
    ) -> None:
        """Add what depends on the sizes of the differences alone."""
        self.last_largest = float(errors.max())
        if self.last_largest > self._max_abs:
            worst = int(errors.argmax())
            self._max_abs = self.last_largest
            self._max_at = start + worst if at is None else int(at[worst])
        needed = errors / reference.denominator
        self._needed = max(self._needed, float(needed.max()))
        if self._probe.atol == self._probe.rtol:
            beyond = needed > self._probe.atol
        else:
            beyond = errors > self._probe.atol + self._probe.rtol * reference.magnitude
        self._mismatches += int(np.count_nonzero(beyond))
        narrow = errors.astype(np.float32, copy=False)
        self._errors.add(narrow)
        ulps = narrow * reference.inverse_binade(self._format.smallest_normal)
        self._max_ulp = max(self._max_ulp, float(ulps.max()))
        self._ulps.add(ulps)

    def add_any(self, reference: Floats, values: Floats, at: NDArray[np.int64]) -> None:
        """Add pairs of any values at the flat indices ``at``: classify the non-finite, add the rest."""
        there, here = np.isfinite(reference), np.isfinite(values)
        both_nan = np.isnan(reference) & np.isnan(values)
        changed = ~there & ~here & ~both_nan & (reference != values)
        self._lost += int((~there & here).sum())
        self._made += int((there & ~here).sum())
        self._changed += int(changed.sum())
        self._nan_matches += int(both_nan.sum())
        disagree = (there != here) | changed
        if self._nonfinite_at is None and disagree.any():
            self._nonfinite_at = int(at[disagree.argmax()])
        finite = there & here
        if finite.any():
            block = ReferenceBlock(reference[finite].astype(np.float64))
            self.add(block, values[finite].astype(np.float64), 0, at[finite])

    def record(self, quantiles: Sequence[float], locate: Locate) -> PairNumbers:
        """Return the numbers; ``locate`` turns a flat position into an index."""
        nonfinite = {
            "nonfinite_mismatches": self._lost + self._made + self._changed,
            "nonfinite_lost": self._lost,
            "nonfinite_made": self._made,
            "nonfinite_changed": self._changed,
            "nonfinite_first": locate(self._nonfinite_at),
            "nan_matches": self._nan_matches,
        }
        if not self._count:
            return PairNumbers(finite_pairs=0, **nonfinite)
        epsilon = self._format.epsilon
        median, p99 = self._ulps.quantiles((0.5, 0.99), self._max_ulp)
        return PairNumbers(
            finite_pairs=self._count,
            max_abs=self._max_abs,
            max_abs_index=locate(self._max_at),
            unequal=self._unequal,
            mismatches=self._mismatches,
            ulp_median=median / epsilon,
            ulp_p99=p99 / epsilon,
            ulp_max=self._max_ulp / epsilon,
            abs_quantiles=self._errors.quantiles(quantiles, self._max_abs),
            minimum_tolerance=self._needed,
            **self._relations(),
            **nonfinite,
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
