"""Scaled dot-product attention on the device: one operator without gradients, PyTorch's math path with them."""

from __future__ import annotations

import math
from typing import Any

import torch

from spyre_emulator import kernels, private
from spyre_emulator.kernels import Kernel
from spyre_emulator.numerics import round_

aten = private.aten
Tensor = torch.Tensor
FUSED = aten._scaled_dot_product_fused_attention_overrideable.default


def route(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """aten::scaled_dot_product_attention for device tensors, in every dispatch mode the same operators."""
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if needs_grad or dropout_p > 0.0 or query.dim() != 4:
        result: Tensor = aten._scaled_dot_product_attention_math.default(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]
        return result
    if enable_gqa and key.shape[1] != query.shape[1]:
        key, value = (_expand_heads(t, query.shape[1]) for t in (key, value))
    fused: Tensor = FUSED(query, key, value, _bias(attn_mask, query), 0.0, is_causal, False, scale=scale)[0]
    return fused


def _expand_heads(x: Tensor, heads: int) -> Tensor:
    batch, groups, length, width = x.shape
    repeated = x[:, :, None].expand(batch, groups, heads // groups, length, width)
    return repeated.reshape(batch, heads, length, width)


def _bias(mask: Tensor | None, query: Tensor) -> Tensor | None:
    if mask is None or mask.dtype is not torch.bool:
        return mask
    zeros = torch.zeros_like(mask, dtype=query.dtype)
    return zeros.masked_fill(mask.logical_not(), float("-inf"))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
    half: bool,
) -> tuple[Any, ...]:
    """Results of the fused operator; only the first is used by PyTorch without gradients."""
    factor = math.sqrt(scale if scale is not None else query.shape[-1] ** -0.5)
    rounded = round_ if half else (lambda t: t)
    scores = rounded(rounded(query * factor) @ rounded(key * factor).transpose(-2, -1))
    if is_causal:
        blocked = torch.ones(scores.shape[-2:], dtype=torch.bool, device="cpu").triu(1)
        scores.masked_fill_(blocked, float("-inf"))
    if attn_bias is not None:
        scores = rounded(scores + attn_bias)
    weights = rounded(torch.softmax(scores, -1))
    output = _like_query(rounded(weights @ value), query)
    empty = torch.empty(0, dtype=torch.float32, device="cpu")
    return output, empty, empty, empty, query.shape[-2], key.shape[-2], empty, empty, empty


def _like_query(output: Tensor, query: Tensor) -> Tensor:
    """`output` in the dimension order of the query's strides, as the device's decomposition leaves it."""
    order = sorted(range(output.dim()), key=query.stride, reverse=True)
    if order == list(range(output.dim())):
        return output
    result = torch.empty_permuted(output.shape, order, dtype=output.dtype, device="cpu")
    return result.copy_(output)


def register() -> None:
    """Register the kernel and its routes: eager, eager with autograd, and tracing without gradients."""
    kernels.register(Kernel(FUSED, attention, program=True, rounds=False))
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        private.registers_for("aten", key)("scaled_dot_product_attention", route)

    def on_device(query: Tensor, *_: Any, **__: Any) -> bool:
        return query.device.type == private.DEVICE_NAME

    private.override_composite(aten.scaled_dot_product_attention.default, on_device, route)
