"""Smaller operands that still fail: sizes are lowered wherever they occur together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

Tensor = torch.Tensor
Operands = tuple[tuple[Any, ...], dict[str, Any]]
Fails = Callable[[Operands], bool]
TRIES = 60
"""Executions that a reduction may cost."""


def reduced(operands: Operands, fails: Fails) -> Operands:
    """Return operands that fail like the given ones and are as small as a greedy search finds.

    A size that several operands share (the rows of two addends, the inner size of a product) is lowered in
    all of them at once, in lists of integers too. Strides keep their order; where a dense copy no longer
    fails, the gaps between elements stay. ``fails`` must not raise for operands that the op refuses.
    """
    left = TRIES
    best = operands
    progress = True
    while progress and left > 0:
        progress = False
        for size in sorted(_sizes(best), reverse=True):
            for smaller in _candidates(size):
                left -= 1
                made = _resized(best, size, smaller, fails)
                if made is not None:
                    best, progress = made, True
                    break
                if left <= 0:
                    return best
    return best


def _sizes(operands: Operands) -> set[int]:
    return {size for tensor in _tensors(operands) for size in tensor.shape if size > 1}


def _candidates(size: int) -> Iterator[int]:
    """Smaller sizes, the smallest first; sizes that fit sticks of 64 elements behave differently from others."""
    tried = [1, 2, 3, size // 8, size // 4, size // 2, size - 64, size - 1]
    yield from sorted({one for one in tried if 0 < one < size})


def _resized(operands: Operands, size: int, smaller: int, fails: Fails) -> Operands | None:
    for dense in (True, False):
        made = pytree.tree_map(lambda leaf, dense=dense: _leaf(leaf, size, smaller, dense=dense), operands)
        if fails(made):
            result: Operands = made
            return result
    return None


def _leaf(leaf: Any, size: int, smaller: int, *, dense: bool) -> Any:
    if isinstance(leaf, Tensor):
        cut = leaf[tuple(slice(0, smaller) if n == size else slice(None) for n in leaf.shape)]
        return packed(cut, like=leaf) if dense else cut
    if isinstance(leaf, int) and not isinstance(leaf, bool) and leaf == size:
        return smaller
    return leaf


def packed(tensor: Tensor, like: Tensor) -> Tensor:
    """A copy without gaps whose dimensions lie in the order of the strides, at the storage offset, of ``like``."""
    steps = like.stride()
    order = sorted(range(tensor.dim()), key=lambda axis: (-steps[axis], axis))
    strides, step = [0] * tensor.dim(), 1
    for axis in reversed(order):
        expanded = like.stride(axis) == 0 and like.shape[axis] > 1
        strides[axis] = 0 if expanded else step
        step *= 1 if expanded else tensor.shape[axis]
    offset = like.storage_offset()
    flat = torch.zeros(offset + step, dtype=tensor.dtype)
    target = flat.as_strided(tensor.shape, strides, offset)
    first = tuple(slice(0, 1) if strides[axis] == 0 else slice(None) for axis in range(tensor.dim()))
    target[first].copy_(tensor[first])
    return target


def _tensors(operands: Operands) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(operands) if isinstance(leaf, Tensor)]
