"""Named tensors inside whatever a model returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

CACHE_PARTS = ("self_attention_cache", "cross_attention_cache", "layers", "keys", "values")
"""Attributes through which the caches of transformers hold their tensors."""
DEEPEST = 32
"""Nesting beyond which an object is taken for one that contains itself."""


@dataclass(frozen=True)
class Tree:
    """Tensors by name, in order, and what else was found."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    """Name to reason, for values that cannot be compared."""


def walk(outputs: Mapping[str, object]) -> Tree:
    """Return each tensor in ``outputs`` under its dotted name; ``None`` is no value and leaves no trace."""
    tree = Tree()
    for name, value in outputs.items():
        _visit(tree, str(name), value, 0)
    return tree


def _visit(tree: Tree, name: str, value: object, depth: int) -> None:
    if value is None:
        return
    if depth > DEEPEST:
        tree.unknown[name] = f"nested deeper than {DEEPEST} levels"
        return
    if isinstance(value, torch.Tensor | np.ndarray | np.generic | bool | int | float):
        _leaf(tree, name, value)
        return
    children = list(_children(value))
    if not children:
        if not isinstance(value, Mapping | list | tuple):
            tree.unknown[name] = f"no tensor known inside {type(value).__qualname__}"
        return
    for key, child in children:
        _visit(tree, f"{name}.{key}", child, depth + 1)


def _children(value: object) -> Iterator[tuple[str, object]]:
    """Yield the named parts of a container, a dataclass or a cache of transformers."""
    if isinstance(value, Mapping):
        yield from ((str(key), child) for key, child in value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from zip(value._fields, value, strict=True)
    elif isinstance(value, list | tuple):
        yield from ((str(index), child) for index, child in enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((part.name, getattr(value, part.name)) for part in dataclasses.fields(value))
    else:
        for part in CACHE_PARTS:
            child = getattr(value, part, None)
            if isinstance(child, torch.Tensor | list) or (child is not None and part.endswith("_cache")):
                yield part, child


def _leaf(tree: Tree, name: str, value: torch.Tensor | np.ndarray | np.generic | bool | int | float) -> None:
    tensor = value if isinstance(value, torch.Tensor) else None
    if tensor is None:
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            tree.unknown[name] = f"an array of {array.dtype}"
            return
        tensor = torch.from_numpy(np.array(array))
    reason = _unreadable(tensor)
    if reason:
        tree.unknown[name] = reason
    else:
        tree.tensors[name] = _plain(tensor)


def _unreadable(tensor: torch.Tensor) -> str | None:
    """Return why the values of a tensor cannot be read; None when they can."""
    if tensor.is_meta:
        return "a meta tensor has no values"
    if tensor.is_nested:
        return "a nested tensor has no single shape"
    return None


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values as a dense, real tensor on the host."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.resolve_neg().cpu()
