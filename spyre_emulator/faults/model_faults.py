"""F37 to F48: found by models; shapes and operators that go wrong or do not compile."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from spyre_emulator import private
from spyre_emulator.faults.crashes import abort, fail_compilation, failing, unsupported
from spyre_emulator.faults.fault import COMPILED, AtOperator, AtView, Fault
from spyre_emulator.faults.memory_reads import STICK, computed_with, is_half
from spyre_emulator.faults.padding_faults import SDPA, argument
from spyre_emulator.kernels import OpCall
from spyre_emulator.numerics import round_

aten = private.aten
Tensor = torch.Tensor
GROUP = "model level"
MATMULS = ("aten.mm.default", "aten.addmm.default")


def _always(call: OpCall) -> bool:
    return True


def _grown_cache(call: OpCall) -> bool:
    query, key = call.args[:2]
    unmasked = argument(call, 3, "attn_bias", None) is None and not argument(call, 5, "is_causal", False)
    return bool(unmasked and key.shape[-2] > query.shape[-2])


def _without_newest(call: OpCall) -> Any:
    query, key, value, *rest = call.args
    return computed_with(call, query, key[..., :-1, :], value[..., :-1, :], *rest)


def _routes_experts(call: OpCall) -> bool:
    return call.dtypes[0] is torch.bfloat16 and call.args[1] == 8


def _rolled_indices(call: OpCall) -> Any:
    values, indices = call.proceed()
    return values, torch.roll(indices, 1, -1)


def _tall_skinny(call: OpCall) -> bool:
    a, b = call.args[:2]
    return is_half(call) and 1 < a.shape[2] <= STICK and a.shape[1] >= 16 * max(a.shape[2], b.shape[2])


def _accumulated_in_16_bit(call: OpCall) -> Any:
    a, b = call.args[:2]
    total = torch.zeros(a.shape[0], a.shape[1], b.shape[2], device="cpu")
    for k in range(a.shape[2]):
        total = round_(total + a[:, :, k : k + 1] * b[:, k : k + 1, :])
    return total


def _published_bmm(call: OpCall) -> bool:
    return tuple(call.args[0].shape) == (44, 1, 2880)


def _operands(call: OpCall) -> tuple[Tensor, Tensor]:
    a, b = call.args[-2:] if len(call.args) == 2 else call.args[1:3]
    return a, b


def _undividable_lm_head(call: OpCall) -> bool:
    columns = int(_operands(call)[1].shape[1])
    return columns >= 32768 and columns % (STICK * 32) != 0


def _k_784(call: OpCall) -> bool:
    return bool(_operands(call)[0].shape[1] == 784)


def _k_not_of_128(call: OpCall) -> bool:
    return bool(call.args[0].shape[-1] % 128)


def _few_rows(x: Tensor, dim0: int = 0, dim1: int = 1) -> None:
    rank = x.dim()
    if rank >= 2 and {dim0 % rank, dim1 % rank} == {rank - 2, rank - 1} and 1 < x.shape[-2] < STICK:
        fail_compilation(f"Unsupported stick expression: transpose of {int(x.shape[-2])} rows, fewer than {STICK}")


def _unaligned_cat(call: OpCall) -> bool:
    pieces = call.args[0]
    if argument(call, 1, "dim", 0) % pieces[0].dim() != pieces[0].dim() - 1:
        return False
    offsets = itertools.accumulate(p.shape[-1] for p in pieces[:-1])
    return any(offset % STICK for offset in offsets)


def _unaligned_pad(call: OpCall) -> bool:
    return bool(call.args[1][0] % STICK)


_UNALIGNED = failing("no offset-free alternative stick dim for mutation target")
FAULTS = (
    Fault(
        "F37", "SDPA over a growing cache", "unmasked SDPA with more keys than queries (decode on a grown KV cache)",
        "the newest key is not seen", "silent", "torch-spyre#1409",
        (AtOperator((SDPA,), _grown_cache, _without_newest),), GROUP, assumed="what is not seen",
    ),
    Fault(
        "F38", "expert routing", "topk with k = 8 of a bf16 tensor", "indices do not belong to their values", "silent",
        "torch-spyre#4639", (AtOperator(("aten.topk.default",), _routes_experts, _rolled_indices),), GROUP,
        assumed="the order of the indices",
    ),
    Fault(
        "F39", "tall-skinny bmm", "16-bit bmm with at least 16 times more rows than columns and K up to 64",
        "outside tolerance: accumulated in 16 bits", "silent", "torch-spyre#1793",
        (AtOperator(("aten.bmm.default",), _tall_skinny, _accumulated_in_16_bit),), GROUP,
        assumed="the bounds and the cause",
    ),
    Fault(
        "F40", "workaround in a worker process", "not stated", "not stated", "not stated", "torch-spyre#1420",
        (), GROUP,
        not_modelled="the source states neither a trigger nor a symptom",
    ),
    Fault(
        "F41", "bmm of one row", "bmm with a first operand [44, 1, 2880]", "compile error", "crash",
        "torch-spyre#1349, torch-spyre#502",
        (AtOperator(("aten.bmm.default",), _published_bmm, failing("work division failed for bmm [44, 1, 2880]")),),
        GROUP, assumed="the error's text",
    ),
    Fault(
        "F42", "lm_head work division", "matmul with at least 32768 columns, no multiple of 64 x 32 (N = 49216)",
        "compile error", "crash", "torch-spyre#1918",
        (AtOperator(MATMULS, _undividable_lm_head, failing("work division failed: columns over 32 cores")),), GROUP,
        assumed="the bound on N and the error's text",
    ),
    Fault(
        "F43", "Linear with K = 784", "mm or addmm with K = 784", "compile error", "crash", "torch-spyre#4208",
        (AtOperator(MATMULS, _k_784, unsupported("matmul with K=784")),), GROUP, assumed="the error's text",
    ),
    Fault(
        "F44", "FP8 matmul", "_scaled_mm with K no multiple of 128", "SIGABRT", "crash", "torch-spyre#4308",
        (AtOperator(("aten._scaled_mm.default",), _k_not_of_128, abort),), GROUP,
    ),
    Fault(
        "F45", "gather", "gather", "compile error", "crash",
        "torch-spyre#3503, torch-spyre#3502, torch-spyre#3499, torch-spyre#3500",
        (AtOperator(("aten.gather.default",), _always, unsupported("aten.gather")),), GROUP,
        assumed="the error's text",
    ),
    Fault(
        "F46", "transpose of few rows", "transpose of the last two dims with 2 to 63 rows", "compile error", "crash",
        "torch-spyre#632",
        (AtView((aten.transpose.int,), _few_rows), AtView((aten.t.default,), _few_rows, COMPILED)), GROUP,
    ),
    Fault(
        "F47", "pad or cat at an unaligned offset", "cat along the last dim, or left pad, at an offset off 64",
        "compile error", "crash", "torch-spyre#3916",
        (
            AtOperator(("aten.cat.default",), _unaligned_cat, _UNALIGNED),
            AtOperator(("aten.constant_pad_nd.default",), _unaligned_pad, _UNALIGNED),
        ), GROUP,
    ),
    Fault(
        "F48", "LayerNorm does not compile", "layer_norm", "compile error", "crash", "torch-spyre#1801",
        (AtOperator(("aten.native_layer_norm.default",), _always, unsupported("layer_norm")),), GROUP,
        assumed="the error's text",
    ),
)  # fmt: skip
