"""Errors of single vectors along the last dimension: the logits of a step, the embedding of a token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from harness.compare.census import unravel
from harness.compare.pairs import Side
from harness.records import PairNumbers

ELEMENTS = 1 << 18
"""Elements to a block, in whole vectors: 2 MB for each float64 buffer."""


@dataclass(frozen=True)
class VectorSquares:
    """Sums of squares of each kept vector, float64, over the elements that are finite on both sides."""

    error: torch.Tensor
    reference: torch.Tensor

    @property
    def relative(self) -> torch.Tensor:
        """Relative L2 error: NaN (undefined) for zero by zero, infinite for something by zero."""
        return (self.error / self.reference).sqrt()


@dataclass(frozen=True)
class Vectors:
    """Which vectors an output has, and each side's errors at them."""

    rows: torch.Tensor
    """Numbers of the kept vectors, in C order of the leading dimensions."""
    leading: tuple[int, ...]
    width: int
    sides: dict[str, VectorSquares]

    def worst(self, side: str) -> tuple[tuple[int, ...] | None, float | None]:
        """Return index and relative L2 error of a side's worst vector; None where none is defined."""
        relative = self.sides[side].relative
        known = (~relative.isnan()).nonzero().reshape(-1)
        if not len(known):
            return None, None
        at = int(known[relative[known].argmax()])
        return unravel(int(self.rows[at]), self.leading), float(relative[at])

    def typical_ratio(self, side: str, control: str, floor: float) -> float | None:
        """Return the geometric mean over vectors of a side's error in units of the control's.

        Neither error counts as less than ``floor``, which is added to the control's in quadrature. One
        vector with a lucky control, or one massive activation, cannot dominate a mean of logarithms.
        """
        relative, unit = self.sides[side].relative, self.sides[control].relative
        known = ~relative.isnan() & ~unit.isnan()
        if not known.any():
            return None
        ratios = relative[known].clamp_min(floor) / torch.hypot(unit[known], torch.tensor(floor).double())
        return math.exp(float(ratios.log().mean()))

    def worst_ratio(self, side: str, control: str, floor: float) -> tuple[tuple[int, ...] | None, float | None]:
        """Return index and size of the largest error of one vector in units of what the control costs there.

        That unit is the control's error at the vector and over all vectors of its row (the last leading
        dimension), and ``floor``, added in quadrature: a control that is lucky at one vector is no scale for it.
        """
        relative, unit = self.sides[side].relative, self.sides[control].relative
        known = (~relative.isnan() & ~unit.isnan()).nonzero().reshape(-1)
        if not len(known):
            return None, None
        ratios = relative[known] / (unit[known].square() + self._row_squares(control)[known] + floor**2).sqrt()
        at = int(ratios.argmax())
        return unravel(int(self.rows[known[at]]), self.leading), float(ratios[at])

    def _row_squares(self, side: str) -> torch.Tensor:
        """Return the squared relative L2 error of each vector's whole row."""
        which = self.rows // (self.leading[-1] if self.leading else 1)
        count = int(which.max()) + 1 if len(which) else 0
        squares = self.sides[side]
        error, reference = (
            torch.zeros(count, dtype=torch.float64).index_add(0, which, part)
            for part in (squares.error, squares.reference)
        )
        return (error / reference)[which].nan_to_num(0.0)


def vector_errors(reference: torch.Tensor, sides: Mapping[str, Side], mask: torch.Tensor | None) -> Vectors:
    """Return the errors of all vectors of an output of two or more dimensions that the mask keeps.

    The mask is bool and has the leading dimensions or fewer; an elementwise one keeps a vector whole.
    """
    leading = tuple(reference.shape[:-1])
    width = reference.shape[-1]
    count = math.prod(leading)
    rows = torch.arange(count) if mask is None else _kept(mask, leading, count)
    squares = {name: _blank(len(rows)) for name in sides}
    flat = {name: side.tensor.reshape(count, width) for name, side in sides.items()}
    wanted = reference.reshape(count, width)
    columns = min(width, ELEMENTS)
    step = max(1, ELEMENTS // columns)
    for first in range(0, len(rows), step):
        block = slice(first, first + step)
        chosen = _consecutive(rows[block])
        for column in range(0, width, columns):
            part = slice(column, column + columns)
            truth = wanted[chosen, part].to(torch.float64)
            for name, tensor in flat.items():
                _add(squares[name], block, truth, tensor[chosen, part])
    return Vectors(rows=rows, leading=leading, width=width, sides=squares)


def one_vector(shape: tuple[int, ...], sides: Mapping[str, PairNumbers]) -> Vectors:
    """Return the errors of an output of at most one dimension, which its pair numbers tell already."""
    squares = {}
    for name, pair in sides.items():
        error = pair.finite_pairs * (pair.rms or 0.0) ** 2
        truth = error / pair.relative_l2**2 if pair.relative_l2 else float(pair.relative_l2 is not None)
        parts = (torch.tensor([part], dtype=torch.float64) for part in (error, truth))
        squares[name] = VectorSquares(*parts)
    return Vectors(rows=torch.zeros(1, dtype=torch.int64), leading=(), width=math.prod(shape), sides=squares)


def _blank(count: int) -> VectorSquares:
    return VectorSquares(*(torch.zeros(count, dtype=torch.float64) for _ in range(2)))


def _consecutive(rows: torch.Tensor) -> slice | torch.Tensor:
    """Return a slice, which copies nothing, where the rows are neighbours."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first == len(rows) - 1 else rows


def _kept(mask: torch.Tensor, leading: tuple[int, ...], count: int) -> torch.Tensor:
    """Return the numbers of the vectors that the mask keeps; an elementwise mask keeps any with an element."""
    if mask.dim() > len(leading):
        mask = mask.any(-1)
    return mask.reshape(-1).repeat_interleave(count // max(mask.numel(), 1)).nonzero().reshape(-1)


def _add(squares: VectorSquares, block: slice, truth: torch.Tensor, found: torch.Tensor) -> None:
    """Add the squares of a part of some vectors, over the elements that are finite on both sides."""
    error = found.to(torch.float64) - truth
    error_sum, truth_sum = ((values * values).sum(-1) for values in (error, truth))
    if not (error_sum.isfinite().all() and truth_sum.isfinite().all()):
        both = torch.isfinite(error) & torch.isfinite(truth)
        error_sum, truth_sum = (torch.where(both, values, 0.0).square().sum(-1) for values in (error, truth))
    squares.error[block] += error_sum
    squares.reference[block] += truth_sum
