"""Exact comparison of integers and booleans."""

from __future__ import annotations

import torch

from harness.compare.census import bit_pattern, unravel
from harness.compare.pairs import PairResult, Side, SideNumbers
from harness.records import Census, PairNumbers


def compare_integers(reference: torch.Tensor, sides: dict[str, Side], mask: torch.Tensor | None = None) -> PairResult:
    """Return censuses and pair numbers of integer or boolean tensors of one shape; only equality counts."""
    kept = _positions(reference, mask)
    wanted = _exact(reference)[kept]
    return PairResult(
        reference=_census(wanted, reference),
        sides={
            name: SideNumbers(
                census=_census(_exact(side.tensor)[kept], side.tensor),
                numbers=_numbers(wanted, _exact(side.tensor)[kept], kept, tuple(reference.shape)),
            )
            for name, side in sides.items()
        },
    )


def _positions(reference: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the flat indices of the elements that the mask keeps."""
    if mask is None:
        return torch.arange(reference.numel())
    inner = reference.numel() // max(mask.numel(), 1)
    return mask.reshape(-1).repeat_interleave(inner).nonzero().reshape(-1)


def _exact(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values as flat int64; uint64 wraps alike on both sides."""
    return tensor.reshape(-1).to(torch.int64)


def _census(values: torch.Tensor, tensor: torch.Tensor) -> Census:
    constant = values.numel() > 1 and bool((values == values[0]).all())
    return Census(
        zeros=int((values == 0).sum()),
        constant=constant,
        pattern=bit_pattern(tensor) if constant else None,
    )


def _numbers(wanted: torch.Tensor, found: torch.Tensor, kept: torch.Tensor, shape: tuple[int, ...]) -> PairNumbers:
    """Return how many elements differ and by how much at most."""
    different = wanted != found
    unequal = int(different.sum())
    errors = (found.to(torch.float64) - wanted.to(torch.float64)).abs()
    worst = int(errors.argmax()) if wanted.numel() else None
    return PairNumbers(
        finite_pairs=wanted.numel(),
        unequal=unequal,
        mismatches=unequal,
        max_abs=None if worst is None else float(errors[worst]),
        max_abs_index=None if worst is None else unravel(int(kept[worst]), shape),
        mean_abs=None if worst is None else float(errors.mean()),
    )
