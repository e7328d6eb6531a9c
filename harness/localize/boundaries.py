"""Module boundaries of an unmodified model: what enters and leaves each module can be seen and replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from harness.localize.companion import Boundary

Pause = Callable[[Boundary], Any]
"""Is told of a boundary; returns the leaves to go on with, or None to keep them."""


def is_leaf(module: nn.Module) -> bool:
    """Whether a module has no child: it runs as a whole."""
    return next(module.children(), None) is None


@contextmanager
def watched(model: nn.Module, pause: Pause) -> Iterator[None]:
    """Let ``pause`` see the boundaries of every module of ``model`` while the context is open."""
    before = [(module, module.__dict__.get("forward")) for module in model.modules()]
    try:
        for path, module in model.named_modules():
            module.forward = _wrapper(path, module.forward, pause)
        yield
    finally:
        for module, own in before:
            module.__dict__.pop("forward", None)
            if own is not None:
                module.forward = own


def _wrapper(path: str, forward: Callable[..., Any], pause: Pause) -> Callable[..., Any]:
    def watched_forward(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _through(pause, path, "enter", (args, kwargs))
        return _through(pause, path, "leave", forward(*args, **kwargs))

    return watched_forward


def _through(pause: Pause, path: str, kind: Any, tree: Any) -> Any:
    leaves, spec = pytree.tree_flatten(tree, is_leaf=_whole)
    replaced = pause(Boundary(path, kind, tuple(leaves)))
    return tree if replaced is None else pytree.tree_unflatten(replaced, spec)


def _whole(value: Any) -> bool:
    """Whether a value is not taken apart: each side keeps its own cache and configuration objects."""
    return not isinstance(value, tuple | list | dict)


def tensors(values: tuple[Any, ...]) -> list[torch.Tensor]:
    """The tensors among leaves."""
    return [value for value in values if isinstance(value, torch.Tensor)]
