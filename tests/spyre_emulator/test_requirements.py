"""What operators ask of sticks, by operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from spyre_emulator.requirements import Requirement, requirement
from spyre_emulator.sticks import geometry

aten = torch.ops.aten


def asked(op: Any, result: tuple[int, ...], *args: Any) -> tuple[Requirement, list[Any]]:
    flat = [x for a in args for x in (a if isinstance(a, list) else [a])]
    operands = [geometry(v) for v in flat if isinstance(v, torch.Tensor)]
    return requirement(op, args, operands, geometry(meta(*result))), operands


def meta(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def needs(found: tuple[Requirement, list[Any]], result_dim: int | None) -> list[Any]:
    requirement, operands = found
    return [
        None if a is None else a.acceptable(v, result_dim)
        for a, v in zip(requirement.accesses, operands, strict=True)
    ]  # fmt: skip


def test_a_matmul_sticks_a_on_k_and_b_on_n() -> None:
    found = asked(aten.mm.default, (4, 32), meta(4, 64), meta(64, 32))
    assert (found[0].fixed_result, found[0].contracted, needs(found, 1)) == (1, 64, [(1,), (1,)])
    found = asked(aten.addmm.default, (4, 32), meta(32), meta(4, 64), meta(64, 32))
    assert needs(found, 1) == [(0,), (1,), (1,)]
    assert needs(asked(aten.bmm.default, (2, 4, 1), meta(2, 4, 64), meta(2, 64, 1)), None) == [(2,), None]


def test_pointwise_operands_share_the_stick_and_what_broadcasts_along_it_is_sparse() -> None:
    found = asked(aten.mul.Tensor, (4, 64), meta(4, 64), meta(4, 1), meta(64), meta(1))
    assert needs(found, 1) == [(1,), (None,), (0,), None]
    assert needs(found, 0) == [(0,), (0,), (None,), None]


@pytest.mark.parametrize(
    ("args", "result", "result_dim", "wanted"),
    [
        ((meta(4, 64), [1], True), (4, 1), None, [(1, None)]),
        ((meta(4, 64), [1], True), (4, 1), 0, [(0,)]),
        ((meta(4, 64), [0]), (64,), 0, [(1,)]),
        ((meta(2, 4, 64), [0, 2]), (4,), None, [(2, 0, None)]),
        ((meta(4, 64),), (), None, [(1, 0, None)]),
    ],
)
def test_a_reduction_over_the_stick_leaves_one_element_per_stick(
    args: Any, result: tuple[int, ...], result_dim: int | None, wanted: list[Any]
) -> None:
    assert needs(asked(aten.sum.dim_IntList, result, *args), result_dim) == wanted


def test_some_operators_leave_less_choice() -> None:
    assert not asked(aten.prod.dim_int, (4,), meta(4, 64), 1)[0].stick_reduction
    found = asked(aten.native_layer_norm.default, (4, 64), meta(4, 64), [64], meta(64), meta(64), 1e-5)
    assert (found[0].fixed_result, needs(found, 1)) == (1, [(1,), (0,), (0,)])
    assert asked(aten.index_select.default, (2, 64), meta(4, 64), 0, meta(2, dtype=torch.int64))[0].barred == 0
    found = asked(aten.embedding.default, (2, 64), meta(9, 64), meta(2, dtype=torch.int64))
    assert needs(found, 1) == [(1,), None]
    assert asked(aten.stack.default, (4, 2, 64), [meta(4, 64), meta(4, 64)], 1)[0].barred == 1
    assert needs(asked(aten.max.other, (4, 64), meta(4, 64), meta(64)), 1) == [(1,), (0,)]


def test_attention_and_convolution_have_fixed_sticks() -> None:
    fused = aten._scaled_dot_product_fused_attention_overrideable.default
    q, k, v = meta(1, 2, 5, 64), meta(1, 2, 7, 64), meta(1, 2, 7, 64)
    found = asked(fused, (1, 2, 5, 64), q, k, v, meta(1, 1, 5, 7))
    assert (found[0].fixed_result, needs(found, 3)) == (3, [(3,), (2,), (3,), (3,)])
    found = asked(aten.convolution.default, (1, 8, 5, 5), meta(1, 4, 5, 5), meta(8, 4, 3, 3), meta(8))
    assert (found[0].fixed_result, needs(found, 1)) == (1, [(1,), (0,), (0,)])
