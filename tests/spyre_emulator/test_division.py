"""Work division: which dimensions are cut into how many parts."""

from __future__ import annotations

import pytest
import torch

import spyre_emulator
from spyre_emulator.division import Division, divide, share
from spyre_emulator.requirements import requirement
from spyre_emulator.sticks import geometry

aten = torch.ops.aten


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.float16, device="meta")


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "wanted"),
    [
        (128, 64, 64, Division((32, 1), 1)),
        (8, 128, 1024, Division((2, 16), 1)),
        (3, 4096, 64, Division((3, 1), 8)),
        (7, 64, 2374 * 64, Division((7, 2), 1)),
        (1, 64, 64, Division((1, 1), 1)),
    ],
)
def test_a_matmul_is_cut_along_its_larger_dimension_first_and_its_sum_last(
    rows: int, inner: int, columns: int, wanted: Division
) -> None:
    a, b, c = (geometry(meta(*s)) for s in ((rows, inner), (inner, columns), (rows, columns)))
    assert divide(requirement(aten.mm.default, (), [a, b], c), c, 1) == wanted


def test_reductions_are_cut_along_what_they_keep() -> None:
    x, y = geometry(meta(6, 4096)), geometry(meta(6))
    asked = requirement(aten.sum.dim_IntList, (meta(6, 4096), [1]), [x], y)
    division = divide(asked, y, None)
    assert (division, division.cores) == (Division((6,)), 6)
    access = asked.accesses[0]
    assert access is not None
    assert division.of_operand(access, x) == {0: 6}
    assert share(x, 1, {0: 6}) == 4096 * 2


def test_fewer_cores_give_fewer_parts() -> None:
    x = geometry(meta(128, 64))
    with spyre_emulator.using(sencores=1):
        assert divide(requirement(aten.neg.default, (), [x], x), x, 1) == Division((1, 1))
