"""The number formats in which distances and saturation are counted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.errors import UsageError


@dataclass(frozen=True)
class NumberFormat:
    """A binary floating point format, as far as errors are measured in it."""

    name: str
    fraction_bits: int
    largest: float
    """Largest finite magnitude."""
    smallest_normal: float
    """Below it the spacing no longer shrinks (or there is nothing but zero)."""

    noise: float
    """Relative L2 error that two right results in this format have at least."""

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger number."""
        return 2.0**-self.fraction_bits

    def ulp(self, value: float) -> float:
        """Return one unit in the last place at the magnitude of ``value``; infinite for a non-finite one."""
        if not math.isfinite(value):
            return math.inf
        _, exponent = math.frexp(max(abs(value), self.smallest_normal))
        return math.ldexp(self.epsilon, exponent - 1)


ORDER_NOISE = 1e-5
"""float32: right results differ by the order of sums, which grows with depth, more than by rounding."""


def _rounding(fraction_bits: int) -> float:
    """Return the error of rounding once: uniform over one unit in the last place."""
    return 2.0**-fraction_bits / math.sqrt(12)


FORMATS = {
    entry.name: entry
    for entry in (
        # One sign, six exponent, nine fraction bits, bias 31, no subnormals; the all-ones code is the
        # one NaN/infinity (Agrawal et al., "DLFloat: A 16-b Floating Point Format", ARITH 2019).
        NumberFormat("dlfloat16", 9, (2 - 2 * 2.0**-9) * 2.0**32, (1 + 2.0**-9) * 2.0**-31, _rounding(9)),
        NumberFormat("float16", 10, 65504.0, 2.0**-14, _rounding(10)),
        NumberFormat("bfloat16", 7, (2 - 2.0**-7) * 2.0**127, 2.0**-126, _rounding(7)),
        NumberFormat("float32", 23, (2 - 2.0**-23) * 2.0**127, 2.0**-126, ORDER_NOISE),
    )
}


def number_format(name: str) -> NumberFormat:
    """Return the format of that name. Raises UsageError that lists the names."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UsageError(f"unknown number format {name!r}; known are {', '.join(FORMATS)}") from None
