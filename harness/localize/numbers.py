"""The few numbers that every stretch and every op gets: cheap enough for thousands of tensors."""

from __future__ import annotations

import math
from typing import Any

import torch

Tensor = torch.Tensor


def numbers(reference: Tensor, candidate: Tensor, control: Tensor) -> dict[str, Any]:
    """The compact numbers of `ModuleError`; four digits are kept."""
    if candidate.shape != reference.shape:
        return {"mismatch": f"shape {tuple(candidate.shape)} against the reference's {tuple(reference.shape)}"}
    if candidate.is_floating_point() != reference.is_floating_point():
        return {"mismatch": f"dtype {candidate.dtype} against the reference's {reference.dtype}"}
    comparable = control.shape == reference.shape
    if not reference.is_floating_point():
        lost = int((candidate != reference).sum()) - (int((control != reference).sum()) if comparable else 0)
        return {"unequal": max(0, lost), "dtype": str(reference.dtype).removeprefix("torch.")}
    mine, odd = relative(reference, candidate)
    theirs, expected = relative(reference, control) if comparable else (None, 0)
    return {"relative_l2": mine, "control": theirs, "nonfinite": max(0, odd - expected)}


def relative(reference: Tensor, side: Tensor) -> tuple[float | None, int]:
    """Relative L2 error over the elements that are finite on both sides, and how many are so on one side only."""
    reference, side = reference.float(), side.float()
    difference = side - reference
    size = float(torch.linalg.vector_norm(difference))
    total, odd = float(torch.linalg.vector_norm(reference)), 0
    if not (math.isfinite(size) and math.isfinite(total)):
        there, here = reference.isfinite(), side.isfinite()
        both = there & here
        same = both | (reference == side) | (reference.isnan() & side.isnan())
        odd = int((~same).sum())
        size = float(torch.linalg.vector_norm(difference[both]))
        total = float(torch.linalg.vector_norm(reference[both]))
    return (float(f"{size / total:.4g}") if total else None if size == 0 else math.inf), odd
