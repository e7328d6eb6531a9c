"""Scaled dot-product attention on the device: one operator without gradients, PyTorch's math path with them."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from spyre_emulator import kernels, padding, private
from spyre_emulator.accumulation import total
from spyre_emulator.custom import needs_grad, refuse_published
from spyre_emulator.decompositions import exponential
from spyre_emulator.kernels import Kernel
from spyre_emulator.numerics import round_, round_scalar

aten = private.aten
Tensor = torch.Tensor
TILE = 64
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
    _check_dtypes(query, key, value, attn_mask)
    if dropout_p > 0.0:
        refuse_published("Attention dropout not implemented for Spyre")
    bias = _bias(attn_mask, query)  # the math path too adds its mask as it is: a boolean one would count as 0 and 1
    if needs_grad(query, key, value, attn_mask) or dropout_p > 0.0 or query.dim() != 4:
        result: Tensor = aten._scaled_dot_product_attention_math.default(
            query, key, value, bias, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]
        return result
    if enable_gqa and key.shape[1] != query.shape[1]:
        key, value = (_expand_heads(t, query.shape[1]) for t in (key, value))
    fused: Tensor = FUSED(query, key, value, bias, 0.0, is_causal, False, scale=scale)[0]
    return fused


def _check_dtypes(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
    """Refuse what PyTorch refuses: shadows of 16- and 32-bit floats have one dtype, so the kernel would not notice."""
    if not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(
            f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype} key.dtype: "
            f"{key.dtype} and value.dtype: {value.dtype} instead."
        )
    if mask is not None and mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise RuntimeError(
            f"Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
            f"{mask.dtype} and query.dtype: {query.dtype} instead."
        )


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
    """Results of the fused operator; only the first is used by PyTorch without gradients.

    The scale is split as its square root on query and key; keys come in tiles of 64 with a running maximum, and the
    sums are corrected where it grows (torch-spyre's flash decomposition).
    """
    scaled = scale if scale is not None else query.shape[-1] ** -0.5
    factor = math.sqrt(abs(scaled))
    if half:
        factor = round_scalar(factor)
        signed = math.copysign(factor, scaled)
        output = _tiled(round_(query * signed), round_(key * factor), value, attn_bias, is_causal)
    else:
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_bias, 0.0, is_causal, scale=scale
        )
    nothing = torch.empty(0, dtype=torch.float32, device="cpu")
    lengths = (query.shape[-2], key.shape[-2])
    return _like_query(output, query), nothing, nothing, nothing, *lengths, nothing, nothing, nothing


def _tiled(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    length = key.shape[-2]
    maximum: Tensor | None = None
    sums = output = query  # replaced by the first tile
    for start in range(0, length, TILE):
        stop = min(start + TILE, length)
        mask = _tile_mask(bias, causal, query.shape[-2], start, stop)
        if mask is not None and maximum is not None and bool((mask == -torch.inf).all()):
            continue  # every position masked: the sums stay as they are
        scores = round_(query @ key[..., start:stop, :].transpose(-2, -1))
        if mask is not None:
            scores = round_(scores.add_(mask))
        tile_maximum = scores.amax(-1, keepdim=True)
        new_maximum = tile_maximum if maximum is None else torch.maximum(maximum, tile_maximum)
        base = new_maximum.masked_fill(new_maximum == -torch.inf, 0.0)
        weights = exponential(round_(scores.sub_(base)))
        tile_sums = round_(total(weights, [-1], True, "softmax"))
        tile_output = round_(weights @ value[..., start:stop, :])
        if maximum is None:
            sums, output = tile_sums, tile_output
        else:
            correction = exponential(round_(maximum - base))
            sums = round_(round_(sums * correction).add_(tile_sums))
            output = round_(round_(output * correction).add_(tile_output))
        maximum = new_maximum
    if maximum is None:
        return torch.zeros(*query.shape[:-1], value.shape[-1], dtype=torch.float32, device="cpu")
    return round_(output / sums).masked_fill_(sums == 0.0, 0.0)


def _tile_mask(bias: Tensor | None, causal: bool, rows: int, start: int, stop: int) -> Tensor | None:
    if bias is None:
        return _causal_mask(rows, start, stop) if causal else None
    tile = bias[..., start:stop] if bias.shape[-1] != 1 else bias
    return tile + _causal_mask(rows, start, stop) if causal else tile


@functools.lru_cache(maxsize=256)
def _causal_mask(rows: int, start: int, stop: int) -> Tensor:
    """0 where a query row may see the key, -Inf elsewhere; built on the CPU, as spyre::causal_mask is."""
    blocked = torch.arange(start, stop, device="cpu") > torch.arange(rows, device="cpu")[:, None]
    return torch.zeros(blocked.shape, dtype=torch.float32, device="cpu").masked_fill_(blocked, -torch.inf)


def _like_query(output: Tensor, query: Tensor) -> Tensor:
    """`output` in the dimension order of the query's strides, as the device's decomposition leaves it."""
    order = sorted(range(output.dim()), key=query.stride, reverse=True)
    if order == list(range(output.dim())):
        return output
    result = torch.empty_permuted(output.shape, order, dtype=output.dtype, device="cpu")
    return result.copy_(output)


def register() -> None:
    """Register the kernel and its routes: eager, eager with autograd, and tracing without gradients."""
    kernels.register(Kernel(FUSED, attention, program=True, scalars=False, reads=padding.attention))
    for key in ("PrivateUse1", "AutogradPrivateUse1"):
        private.registers_for("aten", key)("scaled_dot_product_attention", route)

    def on_device(query: Tensor, *_: Any, **__: Any) -> bool:
        return query.device.type == private.DEVICE_NAME

    private.override_composite(aten.scaled_dot_product_attention.default, on_device, route)
