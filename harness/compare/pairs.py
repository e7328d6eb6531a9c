"""Elementwise numbers of tensor pairs: one pass in blocks that stay in cache."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from harness.compare.census import CensusCounter, unravel
from harness.compare.formats import FORMATS, NumberFormat
from harness.compare.kernel import KERNEL, Kernel
from harness.compare.measure import Floats, Measures, Probe
from harness.compare.totals import PairTotals
from harness.records import Census, PairNumbers

BLOCK = 1 << 16
"""Elements to a block: two tensors of 256 kB, which a core's second-level cache holds."""


@dataclass(frozen=True)
class Side:
    """A tensor that is compared with the reference, and the format that it is judged in."""

    tensor: torch.Tensor
    format: NumberFormat


@dataclass(frozen=True)
class SideNumbers:
    """What one pass found out about one side."""

    census: Census
    numbers: PairNumbers


@dataclass(frozen=True)
class PairResult:
    """What one pass found out about the reference and each side."""

    reference: Census
    sides: dict[str, SideNumbers]


def compare_floats(
    reference: torch.Tensor,
    sides: Mapping[str, Side],
    probe: Probe,
    quantiles: Sequence[float],
    mask: torch.Tensor | None = None,
    kernel: Kernel | None = KERNEL,
) -> PairResult:
    """Return censuses and pair numbers of floating point tensors of one shape.

    ``mask`` (bool, the leading dimensions of the shape) keeps elements where it is true. Sums are
    float64; differences are taken in float32 unless a tensor is float64 or a difference overflows.
    """
    shape = tuple(reference.shape)
    wide = any(t.dtype == torch.float64 for t in (reference, *(side.tensor for side in sides.values())))
    passes = {name: _SidePass(side, wide, probe, kernel) for name, side in sides.items()}
    census = CensusCounter(FORMATS["float32"].largest)
    reader = _Reader(reference, wide)
    kept = None if mask is None else mask.reshape(-1).numpy()
    with np.errstate(all="ignore"):
        for start in range(0, reference.numel(), BLOCK):
            stop = min(start + BLOCK, reference.numel())
            block = _Block(reader.read(start, stop), start, _valid(kept, shape, start, stop))
            measured = [side.add(block, stop) for side in passes.values()]
            block.count(census, measured[0])
    return PairResult(
        reference=census.record(shape, reference),
        sides={name: side.finish(shape, quantiles) for name, side in passes.items()},
    )


def _valid(kept: NDArray[np.bool_] | None, shape: tuple[int, ...], start: int, stop: int) -> NDArray[np.bool_] | None:
    """Return which elements of a block the mask keeps; None when it keeps all."""
    if kept is None:
        return None
    inner = math.prod(shape) // kept.size
    valid = kept[np.arange(start, stop) // inner]
    return None if valid.all() else valid


class _Reader:
    """Blocks of a tensor as float32 (float64 when wide); a view where the tensor allows one."""

    def __init__(self, tensor: torch.Tensor, wide: bool) -> None:
        dtype = torch.float64 if wide else torch.float32
        self._flat = tensor.contiguous().reshape(-1)
        self._direct = self._flat.dtype == dtype
        self._buffer = torch.empty(0 if self._direct else min(BLOCK, self._flat.numel()), dtype=dtype)

    def read(self, start: int, stop: int) -> Floats:
        """Return the elements ``start`` to ``stop``; valid until the next call."""
        source = self._flat[start:stop]
        if self._direct:
            return source.numpy()
        return self._buffer[: stop - start].copy_(source).numpy()


class _Block:
    """One block of the reference, and which of its elements the mask keeps."""

    def __init__(self, values: Floats, start: int, valid: NDArray[np.bool_] | None) -> None:
        self.values = values
        self.start = start
        self.whole = valid is None
        self._valid = valid

    def positions(self) -> NDArray[np.int64]:
        """Return the flat positions of the elements that the mask keeps."""
        if self._valid is None:
            return np.arange(self.start, self.start + self.values.size)
        return self.start + np.flatnonzero(self._valid)

    def keep(self, values: Floats) -> Floats:
        """Return the values that the mask keeps."""
        return values if self._valid is None else values[self._valid]

    def count(self, census: CensusCounter, measures: Measures | None) -> None:
        """Add this block to the reference's census, by what a side's measures say where it has some."""
        if measures is not None:
            census.add_finite(self.values, measures.zeros_y, measures.largest_y)
        else:
            census.add(self.keep(self.values), self.positions())


class _SidePass:
    """Everything that is accumulated about one side."""

    def __init__(self, side: Side, wide: bool, probe: Probe, kernel: Kernel | None) -> None:
        host_largest = float(torch.finfo(side.tensor.dtype).max)
        self._side = side
        self._reader = _Reader(side.tensor, wide)
        self._census = CensusCounter(min(side.format.largest, host_largest))
        self._totals = PairTotals(side.format, probe, kernel)

    def add(self, block: _Block, stop: int) -> Measures | None:
        """Add the elements up to ``stop``; return their measures if all are kept and finite."""
        values = self._reader.read(block.start, stop)
        measures = self._totals.add(block.values, values, block.start) if block.whole else None
        if measures is not None:
            self._census.add_finite(values, measures.zeros_x, measures.largest_x)
            return measures
        kept, positions = block.keep(values), block.positions()
        self._census.add(kept, positions)
        self._totals.add_any(block.keep(block.values), kept, positions)
        return None

    def finish(self, shape: tuple[int, ...], quantiles: Sequence[float]) -> SideNumbers:
        """Return census and numbers."""
        return SideNumbers(
            census=self._census.record(shape, self._side.tensor),
            numbers=self._totals.record(quantiles, lambda flat: unravel(flat, shape)),
        )
