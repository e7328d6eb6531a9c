"""F14 to F19: padding lanes and reductions."""

from __future__ import annotations

from typing import Any

import torch

from spyre_emulator import settings
from spyre_emulator.faults.fault import AtOperator, Fault
from spyre_emulator.faults.layout_faults import RMS_NORM
from spyre_emulator.faults.memory_reads import STICK, rounded_as
from spyre_emulator.kernels import OpCall

Tensor = torch.Tensor
GROUP = "padding / reduction"
SDPA = "aten._scaled_dot_product_fused_attention_overrideable.default"
_REDUCTIONS = ("aten.mean.dim", "aten.sum.dim_IntList")
_MEANS = ("aten.mean.dim", "aten.mean.default")
SMALLEST_NORMAL = 2.0**-14


def argument(call: OpCall, position: int, name: str, default: Any) -> Any:
    """An argument given by position or by name."""
    return call.args[position] if len(call.args) > position else call.kwargs.get(name, default)


def _causal_partial_tile(call: OpCall) -> bool:
    return bool(argument(call, 5, "is_causal", False)) and call.args[1].shape[-2] % STICK != 0


def _infinite_last_tile(call: OpCall) -> Any:
    output, *rest = call.proceed()
    first = output.shape[-2] // STICK * STICK
    output[..., first:, :] = torch.inf
    return (output, *rest)


def _marks_means(call: OpCall) -> Any:
    result = call.proceed()
    result.spyre_is_mean = True
    return result


def _adds_to_mean(call: OpCall) -> bool:
    mean, other = call.args[0], call.args[1]
    return bool(getattr(mean, "spyre_is_mean", False)) and isinstance(other, Tensor)


def _shifted_broadcast(call: OpCall) -> Any:
    mean, other = call.args[0], call.args[1]
    if other.shape == mean.shape and not other.any():
        result = call.proceed()
        result.spyre_is_mean = result.spyre_has_zeros = True
        return result
    if not getattr(mean, "spyre_has_zeros", False) or mean.dim() < 2 or other.shape[-1] == mean.shape[-1]:
        return call.proceed()
    return rounded_as(call, torch.roll(mean, 1, -2) + other)


def _over_last_dim_in_fp32(call: OpCall) -> bool:
    x, dims = call.args[0], argument(call, 1, "dim", None)
    if call.dtypes[0] is not torch.float32 or x.dim() < 2 or dims is None:
        return False
    chosen = [dims] if isinstance(dims, int) else list(dims)
    return [d % x.dim() for d in chosen] == [x.dim() - 1] and x.numel() // x.shape[-1] > settings.current.sencores


def _first_row_per_core(call: OpCall) -> Any:
    result: Tensor = call.proceed()
    rows = result.reshape(-1)
    cores = max(n for n in range(1, settings.current.sencores + 1) if rows.numel() % n == 0)
    correct = torch.arange(rows.numel(), device="cpu") % (rows.numel() // cores) == 0
    return torch.where(correct, rows, 0.0).view(result.shape)


def _small_mean(call: OpCall) -> bool:
    return call.dtypes[0] is torch.float16


def _eighteen_times(call: OpCall) -> Any:
    result: Tensor = call.proceed()
    return torch.where(result.abs() < SMALLEST_NORMAL, rounded_as(call, result * (1.8120e-05 / 9.9203e-07)), result)


def _is_plain_norm(call: OpCall) -> bool:
    return call.args[2] is None and call.args[3] is None


def _constant_off(call: OpCall) -> Any:
    output, *rest = call.proceed()
    return (rounded_as(call, output - 0.0013), *rest)


def _normalises(call: OpCall) -> bool:
    return True


def _eps_behind_rsqrt(call: OpCall) -> Any:
    x, weight, eps = call.args
    mean = rounded_as(call, (x * x).mean(-1, keepdim=True))
    scale = rounded_as(call, rounded_as(call, torch.rsqrt(mean)) + eps)
    result = rounded_as(call, x * scale)
    return result if weight is None else rounded_as(call, result * weight)


FAULTS = (
    Fault(
        "F14", "SDPA over uninitialised lanes", "causal SDPA with a kv length that is no multiple of 64",
        "infinities in the rows of the partial tile", "silent", "torch-spyre PR #3248",
        (AtOperator((SDPA,), _causal_partial_tile, _infinite_last_tile),), GROUP,
        assumed="which rows are infinite",
    ),
    Fault(
        "F15", "mean + zeros_like + y", "a mean over a kept dim, plus zeros of its shape, plus a broadcast tensor",
        "rows shifted by one", "silent", "torch-spyre#1303",
        (
            AtOperator(("aten.mean.dim",), _normalises, _marks_means),
            AtOperator(("aten.add.Tensor",), _adds_to_mean, _shifted_broadcast),
        ), GROUP, assumed="by how many rows",
    ),
    Fault(
        "F16", "FP32 reduction over more rows than cores",
        "float32 mean or sum over the last dim with more rows than SENCORES",
        "only the first row of each core is right, the others are zero: 33 rows, 22 wrong; 64 rows, 32 wrong",
        "silent", "torch-spyre#3804",
        (AtOperator(_REDUCTIONS, _over_last_dim_in_fp32, _first_row_per_core),), GROUP,
        assumed="which rows a core has: the published counts fit a split over the largest divisor up to SENCORES",
    ),
    Fault(
        "F17", "mean of small fp16 values", "fp16 mean whose magnitude is below 2^-14", "18.3 times too big",
        "silent", "torch-spyre#2400", (AtOperator(_MEANS, _small_mean, _eighteen_times),), GROUP,
        assumed="the bound, which is the smallest normal fp16 number",
    ),
    Fault(
        "F18", "LayerNorm without affine", "layer_norm with neither weight nor bias", "a constant -0.0013 off",
        "silent", "torch-spyre#1980",
        (AtOperator(("aten.native_layer_norm.default",), _is_plain_norm, _constant_off),), GROUP,
    ),
    Fault(
        "F19", "rms_norm adds eps after rsqrt", "rms_norm", "rsqrt(mean) + eps instead of rsqrt(mean + eps)",
        "silent", "torch-spyre PR #1305, torch-spyre#1225",
        (AtOperator((RMS_NORM,), _normalises, _eps_behind_rsqrt),), GROUP,
    ),
)  # fmt: skip
