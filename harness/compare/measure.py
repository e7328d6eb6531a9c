"""One block of a tensor pair, measured: the pure form of kernel.c."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.compare.formats import NumberFormat
from harness.compare.histogram import LogHistogram
from harness.compare.kernel import KERNEL, Kernel

Floats = NDArray[np.floating]

EXPONENT = 0x7F800000
"""Exponent bits of a float32."""


@dataclass(frozen=True)
class Probe:
    """Tolerance at which mismatching elements are counted."""

    atol: float
    rtol: float


@dataclass(frozen=True)
class Measures:
    """What one block says; y is the reference, d the side minus y."""

    size: int
    sums: tuple[float, float, float, float, float, float]
    """Of y, y squared, d, |d|, d squared, y times d."""
    unequal: int
    mismatches: int
    zeros_y: int
    zeros_x: int
    worst: int
    """Position of the first largest |d|."""
    largest_y: float
    largest_x: float
    max_abs: float
    max_ulp: float
    """Largest |d| in units of the reference's binade."""
    needed: float
    """Largest |d| / (|y| + 1)."""


class Meter:
    """Measures blocks of one side, by the kernel where there is one, and keeps the histograms."""

    def __init__(self, number_format: NumberFormat, probe: Probe, kernel: Kernel | None = KERNEL) -> None:
        self.errors = LogHistogram()
        self.ulps = LogHistogram()
        self._constants = (number_format.smallest_normal, probe.atol, probe.rtol)
        self._kernel = kernel

    def add(self, reference: Floats, side: Floats) -> Measures | None:
        """Return the measures of a block and count its errors; None, with none counted, if not all is finite.

        A float32 difference that overflows counts as not finite: hand the block over in float64 then.
        """
        if self._kernel is None or reference.dtype != np.float32 or side.dtype != np.float32:
            return self._pure(reference, side)
        raw = self._kernel.measure(reference, side, self._constants, (self.errors.counts, self.ulps.counts))
        if raw is None:
            return None
        return Measures(
            size=reference.size,
            sums=(raw.sum_y, raw.sum_yy, raw.sum_d, raw.sum_a, raw.sum_dd, raw.sum_yd),
            unequal=raw.unequal,
            mismatches=raw.mismatches,
            zeros_y=raw.zeros_y,
            zeros_x=raw.zeros_x,
            worst=raw.worst,
            largest_y=raw.largest_y,
            largest_x=raw.largest_x,
            max_abs=raw.max_abs,
            max_ulp=raw.max_ulp,
            needed=raw.needed,
        )

    def _pure(self, reference: Floats, side: Floats) -> Measures | None:
        """Return what the kernel returns."""
        single = reference.dtype.type
        smallest, atol, rtol = (single(constant) for constant in self._constants)
        difference = side - reference
        sums = _sums(reference, difference)
        if not (math.isfinite(sums[1]) and math.isfinite(sums[4])):
            return None
        magnitude, errors = np.abs(reference), np.abs(difference)
        narrow = errors.astype(np.float32, copy=False)
        ulps = narrow * inverse_binade(magnitude, smallest)
        self.errors.add(narrow)
        self.ulps.add(ulps)
        return Measures(
            size=reference.size,
            sums=sums,
            unequal=int(np.count_nonzero(errors)),
            mismatches=int(np.count_nonzero(errors > atol + rtol * magnitude)),
            zeros_y=reference.size - int(np.count_nonzero(reference)),
            zeros_x=side.size - int(np.count_nonzero(side)),
            worst=int(errors.argmax()),
            largest_y=float(magnitude.max()),
            largest_x=float(np.abs(side).max()),
            max_abs=float(errors.max()),
            max_ulp=float(ulps.max()),
            needed=float((errors / (magnitude + single(1))).max()),
        )


def _sums(reference: Floats, difference: Floats) -> tuple[float, float, float, float, float, float]:
    """Return the float64 sums of y, y squared, d, |d|, d squared and y times d."""
    y, d = reference.astype(np.float64), difference.astype(np.float64)
    return (
        float(y.sum()),
        float(np.dot(y, y)),
        float(d.sum()),
        float(np.abs(d).sum()),
        float(np.dot(d, d)),
        float(np.dot(y, d)),
    )


def inverse_binade(magnitude: Floats, smallest: np.floating) -> NDArray[np.float32]:
    """Return ``2**-e`` per element, where ``2**e <= max(magnitude, smallest) < 2**(e+1)``."""
    clamped = np.maximum(magnitude, smallest).astype(np.float32)
    bits = clamped.view(np.int32)
    np.bitwise_and(bits, EXPONENT, out=bits)
    np.subtract(254 << 23, bits, out=bits)
    bits[bits == 0] = 1 << 22  # 2**-127 is no normal float32
    return clamped
