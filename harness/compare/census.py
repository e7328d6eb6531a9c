"""What a side holds that a difference cannot describe."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from harness.records import Census


class CensusCounter:
    """Counts over the blocks of one side, in order."""

    def __init__(self, saturation: float) -> None:
        self.nan = 0
        self.positive_infinity = 0
        self.negative_infinity = 0
        self.saturated = 0
        self.zeros = 0
        self.first_nonfinite: int | None = None
        self._saturation = saturation
        self._seen = 0
        self._first: float | None = None
        self._constant = True

    def add_finite(self, values: NDArray[np.floating], zeros: int, largest: float) -> None:
        """Count a block without NaN and infinities, of which zeros and largest magnitude are known."""
        if not values.size:
            return
        self._seen += values.size
        self.zeros += zeros
        if largest >= self._saturation:
            self.saturated += int(np.count_nonzero(np.abs(values) >= self._saturation))
        if self._first is None:
            self._first = float(values[0])
        if self._constant:
            self._constant = bool((values == self._first).all())

    def add(self, values: NDArray[np.floating], positions: NDArray[np.int64]) -> None:
        """Count a block of any values; ``positions`` are their flat indices."""
        finite = np.isfinite(values)
        if not finite.all():
            self.nan += int(np.isnan(values).sum())
            self.positive_infinity += int(np.isposinf(values).sum())
            self.negative_infinity += int(np.isneginf(values).sum())
            if self.first_nonfinite is None:
                self.first_nonfinite = int(positions[np.argmin(finite)])
            self._seen += int((~finite).sum())
            self._constant = self._constant and self._all_nan(values)
        kept = values[finite]
        self.add_finite(kept, kept.size - int(np.count_nonzero(kept)), np.inf)

    def _all_nan(self, values: NDArray[np.floating]) -> bool:
        """Tell whether nothing but NaN has come so far."""
        return self._first is None and self.nan == self._seen and bool(np.isnan(values).all())

    def record(self, shape: tuple[int, ...], tensor: torch.Tensor) -> Census:
        """Return the counts; ``tensor`` gives the bit pattern of a constant side."""
        constant = self._constant and self._seen > 1
        return Census(
            nan=self.nan,
            positive_infinity=self.positive_infinity,
            negative_infinity=self.negative_infinity,
            saturated=self.saturated,
            zeros=self.zeros,
            constant=constant,
            pattern=bit_pattern(tensor) if constant else None,
            first_nonfinite=unravel(self.first_nonfinite, shape),
        )


def bit_pattern(tensor: torch.Tensor) -> str:
    """Return the bits of the first element in hexadecimal, most significant byte first."""
    first = tensor.reshape(-1)[:1].contiguous().view(torch.uint8)
    return "0x" + bytes(first.tolist()[::-1]).hex()


def unravel(flat: int | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the index of a flat position in C order; None for None."""
    if flat is None:
        return None
    return tuple(int(part) for part in np.unravel_index(flat, shape)) if shape else ()
