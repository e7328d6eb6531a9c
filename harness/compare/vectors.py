"""Errors of single vectors along the last dimension: the logits of a step, the embedding of a token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from harness.compare.census import unravel
from harness.compare.pairs import Side

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


def vector_errors(reference: torch.Tensor, sides: Mapping[str, Side], mask: torch.Tensor | None) -> Vectors:
    """Return the errors of all vectors that the mask (bool, the leading dimensions or fewer) keeps."""
    leading = tuple(reference.shape[:-1])
    width = reference.shape[-1] if reference.dim() else 1
    count = math.prod(leading)
    rows = torch.arange(count) if mask is None else _kept(mask, leading, count)
    flat = reference.reshape(count, width)
    step = max(1, ELEMENTS // width)
    found: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {name: [] for name in sides}
    for start in range(0, len(rows), step):
        chosen = rows[start : start + step]
        wanted = flat[chosen].to(torch.float64)
        for name, side in sides.items():
            found[name].append(_squares(wanted, side.tensor.reshape(count, width)[chosen].to(torch.float64)))
    return Vectors(
        rows=rows,
        leading=leading,
        width=width,
        sides={name: _joined(parts) for name, parts in found.items()},
    )


def _kept(mask: torch.Tensor, leading: tuple[int, ...], count: int) -> torch.Tensor:
    """Return the numbers of the vectors that the mask keeps; an elementwise mask keeps any with an element."""
    if mask.dim() > len(leading):
        mask = mask.any(-1)
    return mask.reshape(-1).repeat_interleave(count // max(mask.numel(), 1)).nonzero().reshape(-1)


def _squares(wanted: torch.Tensor, found: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    error = found - wanted
    both = torch.isfinite(error) & torch.isfinite(wanted)
    if not both.all():
        error, wanted = (torch.where(both, values, 0.0) for values in (error, wanted))
    return error.square().sum(-1), wanted.square().sum(-1)


def _joined(parts: list[tuple[torch.Tensor, torch.Tensor]]) -> VectorSquares:
    empty = torch.zeros(0, dtype=torch.float64)
    return VectorSquares(
        error=torch.cat([empty, *(error for error, _ in parts)]),
        reference=torch.cat([empty, *(reference for _, reference in parts)]),
    )
