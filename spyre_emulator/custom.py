"""Operators of namespace ``spyre`` that graphs hold instead of PyTorch's decompositions, and the routes to them."""

from __future__ import annotations

from typing import Any

import torch

from spyre_emulator import dispatch, kernels, padding, private, settings
from spyre_emulator.decompositions import rms_norm
from spyre_emulator.fallbacks import UnsupportedError, unsupported
from spyre_emulator.kernels import Kernel

aten = private.aten
Tensor = torch.Tensor


def refuse_published(what: str) -> None:
    """Raise as the published compiler does, where that is asked for."""
    if settings.current.coverage == "published":
        raise private.inductor_error(UnsupportedError(unsupported(what)))


def needs_grad(*tensors: Tensor | None) -> bool:
    """Whether autograd has to see an operator on `tensors`."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def route_rms_norm(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """aten::rms_norm for device tensors: ``spyre::rms_norm`` over the last dimension, PyTorch's own form otherwise."""
    _check_shapes(x, normalized_shape, weight)
    if len(normalized_shape) > 1:
        refuse_published("RMSNorm reducing more than 1 dimension")
    if len(normalized_shape) > 1 or needs_grad(x, weight):
        result: Tensor = private.composite(aten.rms_norm.default)(x, normalized_shape, weight, eps)
        return result
    small = torch.finfo(x.dtype).eps if eps is None else eps
    fused: Tensor = torch.ops.spyre.rms_norm.default(x, weight, small)
    return fused


def _check_shapes(x: Tensor, normalized_shape: list[int], weight: Tensor | None) -> None:
    """Refuse what PyTorch refuses: ``spyre::rms_norm`` works over the last dimension whatever was asked for."""
    wanted = list(normalized_shape)
    if not wanted:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, but got normalized_shape = []")
    if list(x.shape[-len(wanted) :]) != wanted:
        raise RuntimeError(
            f"Given normalized_shape={wanted}, expected input with shape [*{', '.join(map(str, wanted))}], "
            f"but got input of size{list(x.shape)}"
        )
    if weight is not None and list(weight.shape) != wanted:
        raise RuntimeError(
            f"Expected weight to be of same shape as normalized_shape, but got weight of shape {list(weight.shape)} "
            f"and normalized_shape = {wanted}"
        )


def register() -> None:
    """Define ``spyre::rms_norm`` and route aten's form to it, eager and while tracing."""
    private.define("spyre", "rms_norm(Tensor x, Tensor? weight, float eps) -> Tensor")
    op = torch.ops.spyre.rms_norm.default
    kernels.register(Kernel(op, rms_norm, program=True, scalars=False, reads=padding.last_dimension("norm")))
    private.registers_for("spyre", "PrivateUse1")("rms_norm", dispatch.call_for(op))
    private.registers_for("spyre", "Meta")("rms_norm", lambda x, weight, eps: torch.empty_like(x))
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        private.registers_for("aten", key)("rms_norm", route_rms_norm)

    def on_device(x: Tensor, *_: Any, **__: Any) -> bool:
        return x.device.type == private.DEVICE_NAME

    private.override_composite(aten.rms_norm.default, on_device, route_rms_norm)
