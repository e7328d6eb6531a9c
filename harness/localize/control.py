"""The control, module by module: the reference's structure in the case's dtype, without weights of its own."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from harness.localize.boundaries import Compute, is_leaf


def skeleton(reference: nn.Module, candidate: nn.Module) -> nn.Module:
    """A copy of the reference with the candidate's dtypes.

    Parameters of modules without children take no memory: such modules are carried out by `borrowed`.
    """
    dtypes = _dtypes(candidate)
    memo: dict[int, Any] = {}
    for path, module in reference.named_modules():
        for name, parameter in module.named_parameters(path, recurse=False):
            dtype = dtypes.get(name, parameter.dtype)
            if is_leaf(module):
                data = torch.empty((), dtype=dtype).expand(parameter.shape)
            else:
                data = parameter.detach().to(dtype)
            memo.setdefault(id(parameter), nn.Parameter(data, requires_grad=False))
        for name, buffer in module.named_buffers(path, recurse=False):
            memo[id(buffer)] = buffer.detach().to(dtypes.get(name, buffer.dtype), copy=True)
    copied: nn.Module = copy.deepcopy(reference, memo)
    if hasattr(copied, "config") and hasattr(candidate, "config"):
        copied.config.dtype = candidate.config.dtype
    return copied


def borrowed(reference: nn.Module, candidate: nn.Module) -> Compute:
    """Carries out a childless module of the skeleton with the reference's weights, cast for this call."""
    modules = dict(reference.named_modules())
    dtypes = _dtypes(candidate)

    def compute(path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        weights = {
            name: parameter.detach().to(dtypes.get(f"{path}.{name}" if path else name, parameter.dtype))
            for name, parameter in modules[path].named_parameters(recurse=False)
        }
        watched_forward = module.__dict__.pop("forward")  # functional_call goes through the module's own forward
        try:
            return torch.func.functional_call(module, weights, args, kwargs)
        finally:
            module.forward = watched_forward

    return compute


def _dtypes(model: nn.Module) -> dict[str, torch.dtype]:
    """Dtype of each parameter and buffer, by every name it has."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: tensor.dtype for name, tensor in named}
