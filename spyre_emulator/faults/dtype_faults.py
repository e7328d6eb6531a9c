"""F20 to F30: dtypes and number formats."""

from __future__ import annotations

from typing import Any

import torch

from spyre_emulator.faults.crashes import unsupported
from spyre_emulator.faults.fault import AtCast, AtConversion, AtOperator, Fault
from spyre_emulator.faults.memory_reads import rounded_as
from spyre_emulator.kernels import OpCall
from spyre_emulator.numerics import rounded

Tensor = torch.Tensor
GROUP = "dtype / number format"
MASK_FILL = -(1 + 511 / 512) * 2.0**24
"""Code 0xEFFF: what host -Inf becomes (hf-adapters:hf_adapters/hf_common.py `_mask_fill_value`)."""
_MISH_BOUND = -8.0


def _adds_fp32(call: OpCall) -> bool:
    return call.dtypes[0] is torch.float32 and len(call.dtypes) > 1 and call.dtypes[1] is torch.float32


def _second_half_zero(call: OpCall) -> Any:
    result: Tensor = call.proceed().contiguous()
    flat = result.view(-1)
    flat[flat.numel() // 2 + flat.numel() % 2 :] = 0.0
    return result


def _truncated(values: Tensor, dtype: torch.dtype, host: Tensor) -> Tensor:
    if dtype is not torch.bfloat16:
        return host
    bits = values.contiguous().view(torch.int32) & -0x10000
    return bits.view(torch.float32).to(torch.bfloat16)


def _halved_subnormals(values: Tensor, dtype: torch.dtype, host: Tensor) -> Tensor:
    """fraction = (512 + y) >> (1 - e), one shift too many; y and e as in torch-spyre#4689's table."""
    if dtype is not torch.float16:
        return host
    mantissa, exponent = torch.frexp(values.abs())
    exponent = exponent - 1
    nine_bits = ((mantissa * 2 - 1) * 512).to(torch.int32)
    shifted = (512 + nine_bits) >> (1 - (exponent + 15)).clamp(0, 15)
    wrong = torch.copysign(shifted.to(torch.float32) * 2.0**-24, values).to(torch.float16)
    return torch.where((exponent < -14) & (values != 0), wrong, host)


def _staggered(source: torch.dtype, destination: torch.dtype, result: Tensor) -> Tensor:
    """Device order read as logical order: in each pair of sticks, groups of four alternate between the two."""
    if source is not torch.bfloat16 or destination is not torch.float32 or result.dim() == 0 or result.shape[-1] % 64:
        return result
    device = torch.arange(64, device="cpu")
    stick, group, element = device // 32, device % 32 // 4, device % 4
    logical = group * 8 + stick * 4 + element
    pairs = result.reshape(*result.shape[:-1], -1, 64)
    return pairs[..., logical].reshape(result.shape)


def _half_words_as_bool(source: torch.dtype, destination: torch.dtype, result: Tensor) -> Tensor:
    """A bool has two bytes on the device: lane j reads half-word j of the float32 numbers, whose low half is 0."""
    if source is not torch.float32 or destination is not torch.bool or result.dim() == 0 or result.shape[-1] >= 32:
        return result
    lanes = torch.arange(result.shape[-1], device="cpu")
    return result[..., lanes // 2] & (lanes % 2 == 1)


def _compares_integers(call: OpCall) -> bool:
    return call.dtypes[0] in (torch.int32, torch.int64)


def _finite_mask(values: Tensor, dtype: torch.dtype, device: Tensor) -> Tensor:
    return torch.where(device == -torch.inf, MASK_FILL, device)


def _both_minus_infinity(call: OpCall) -> bool:
    a, b = call.args[0], call.args[1]
    if call.dtypes[0] is not torch.bfloat16 or not isinstance(b, Tensor):
        return False
    return bool(((a == -torch.inf) & (b == -torch.inf)).any())


def _all_nan(call: OpCall) -> Any:
    return torch.full_like(call.proceed(), torch.nan)


def _rebiased(values: Tensor, dtype: torch.dtype, device: Tensor) -> Tensor:
    if dtype is not torch.float16:
        return device
    finite = torch.where(torch.isinf(device), torch.copysign(torch.tensor(2.0**16), device), device)
    return torch.where(torch.isnan(device), 1.5 * 2.0**16, finite)


def _very_negative(call: OpCall) -> bool:
    return bool((call.args[0] < _MISH_BOUND).any())


def _mish_without_decay(call: OpCall) -> Any:
    x, result = call.args[0], call.proceed()
    return torch.where(x < _MISH_BOUND, rounded_as(call, x * 2.0**-9), result)


def _of_fp32(call: OpCall) -> bool:
    return call.dtypes[0] is torch.float32


def _cos_of_rounded(call: OpCall) -> Any:
    return torch.cos(rounded(call.args[0]))


FAULTS = (
    Fault(
        "F20", "fp32 add", "add of two float32 tensors", "the second half of the result is zero", "silent",
        "torch-spyre#165", (AtOperator(("aten.add.Tensor",), _adds_fp32, _second_half_zero),), GROUP,
    ),
    Fault(
        "F21", "bf16 to the host truncates", "bf16 tensor copied to the host", "9 to 7 fraction bits by truncation",
        "silent", "torch-spyre#2478, torch-spyre#2479", (AtConversion(leaving=_truncated),), GROUP,
    ),
    Fault(
        "F22", "fp16 subnormals halved", "fp16 values below 2^-14 copied to the host", "halved at every crossing",
        "silent", "torch-spyre#4689", (AtConversion(leaving=_halved_subnormals),), GROUP,
    ),
    Fault(
        "F23", "element arrangement tag lost", "cast bf16 to fp32 with a last dim of whole stick pairs",
        "elements in staggered device order", "silent", "torch-spyre#2843", (AtCast(_staggered),), GROUP,
        assumed="that the consumer reads the staggered order as it lies",
    ),
    Fault(
        "F24", "fp32 to bool", "cast fp32 to bool with a last dim below 32", "half-words are read as elements",
        "silent", "torch-spyre#3094", (AtCast(_half_words_as_bool),), GROUP,
        assumed="the misreading of half-words",
    ),
    Fault(
        "F25", "integer tensor == scalar", "eq of an int32 or int64 tensor with a number", "compile error", "crash",
        "torch-spyre#4332",
        (
            AtOperator(
                ("aten.eq.Scalar",), _compares_integers,
                unsupported("torch.bool result of operand with device format DataFormats.IEEE_INT32"),
            ),
        ), GROUP,
    ),
    Fault(
        "F26", "-Inf becomes -3.35e7", "a 16-bit host tensor with -Inf copied to the device",
        "-Inf arrives as 0xEFFF, a finite number", "silent", "hf-adapters:hf_adapters/hf_common.py",
        (AtConversion(arriving=_finite_mask),), GROUP,
    ),
    Fault(
        "F27", "-Inf + -Inf in bf16", "bf16 add with -Inf in the same place of both operands",
        "the whole output is NaN", "silent", "hf-adapters (Gemma4)",
        (AtOperator(("aten.add.Tensor",), _both_minus_infinity, _all_nan),), GROUP,
    ),
    Fault(
        "F28", "Inf and NaN not propagated", "fp16 host tensor with Inf or NaN copied to the device",
        "Inf arrives as 65536, NaN as 98304", "silent",
        "torch-spyre#1851, torch-spyre#1830, torch-spyre#1774, torch-spyre#1831, torch-spyre#4700",
        (AtConversion(arriving=_rebiased),), GROUP,
    ),
    Fault(
        "F29", "mish of large negative inputs", "mish of inputs below -8", "x/512 instead of nearly zero", "silent",
        "torch-spyre#1893", (AtOperator(("aten.mish.default",), _very_negative, _mish_without_decay),), GROUP,
        assumed="the bound and the size of the error",
    ),
    Fault(
        "F30", "cos of a RoPE cache", "cos of float32 angles", "angles are rounded to 16 bits first", "silent",
        "torch-spyre#1668", (AtOperator(("aten.cos.default",), _of_fp32, _cos_of_rounded),), GROUP,
        assumed="the cause; the source reports a variance of cos",
    ),
)  # fmt: skip
