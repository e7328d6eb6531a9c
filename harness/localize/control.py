"""The control, module by module: the reference's structure in the case's dtype, without weights of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree


def skeleton(reference: nn.Module, candidate: nn.Module) -> nn.Module:
    """A copy of the reference with the candidate's dtypes, whose parameters take no memory of their own."""
    dtypes = _dtypes(candidate)
    memo: dict[int, Any] = {}
    for name, parameter in reference.named_parameters():
        memo[id(parameter)] = Borrowed(parameter.detach(), dtypes.get(name, parameter.dtype))
    for name, buffer in reference.named_buffers():
        memo[id(buffer)] = buffer.detach().to(dtypes.get(name, buffer.dtype), copy=True)
    copied: nn.Module = copy.deepcopy(reference, memo)
    if hasattr(copied, "config") and hasattr(candidate, "config"):
        copied.config.dtype = candidate.config.dtype
    return copied


class Borrowed(torch.Tensor):
    """A parameter of another model, cast anew for every op that reads it.

    Whoever reads it gets its values: the module that holds it, or one that reaches for the weight of another.
    """

    _owner: torch.Tensor
    _is_param: bool

    @staticmethod
    def __new__(cls: type[Borrowed], owner: torch.Tensor, dtype: torch.dtype) -> Borrowed:
        """A stand-in for ``owner`` of shape and place as it has, in another dtype."""
        made: Borrowed = torch.Tensor._make_wrapper_subclass(
            cls, owner.shape, strides=owner.stride(), dtype=dtype, device=owner.device
        )
        made._owner = owner
        made._is_param = True  # what nn.Parameter's isinstance asks for
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # declared without its classmethod
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[Any, Any] | None = None,
    ) -> Any:
        args, kwargs = pytree.tree_map_only(cls, cls.values, (args, kwargs or {}))
        return func(*args, **kwargs)

    def values(self) -> torch.Tensor:
        """The owner's values in this dtype."""
        return self._owner.to(self.dtype)


def _dtypes(model: nn.Module) -> dict[str, torch.dtype]:
    """Dtype of each parameter and buffer, by every name it has."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: tensor.dtype for name, tensor in named}
