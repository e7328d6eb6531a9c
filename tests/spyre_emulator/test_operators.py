"""The operator table against a committed copy of the published one, row by row."""

import csv
from pathlib import Path

import pytest
import torch

from spyre_emulator import operators

aten = torch.ops.aten
PUBLISHED = Path(__file__).parent / "data" / "supported_operations.tsv"


def published():
    lines = [line for line in PUBLISHED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_the_copy_holds_the_whole_table():
    rows = published()
    assert len(rows) == 110
    assert len({row["op"] for row in rows}) == 110
    assert sum(row["execution"] == "CPU fallback" for row in rows) == 14


@pytest.mark.parametrize("row", published(), ids=lambda row: row["op"])
def test_our_table_says_what_the_published_one_says(row):
    ours = [r for r in operators.table() if r.published == row["op"]]
    assert len(ours) == 1
    assert ours[0].eager is (row["eager"] == "Y")
    assert ours[0].compiled is (row["compiled"] == "Y")
    assert (ours[0].state == "cpu_fallback") is (row["execution"] == "CPU fallback")
    assert ours[0].constraint == row["note"]
    assert ours[0].aten


def test_no_row_of_ours_is_unpublished_without_a_source():
    names = {row["op"] for row in published()}
    for row in operators.table():
        assert row.published in names or (row.published == "" and row.source)


def test_every_operator_exists():
    namespaces = (aten, torch.ops._c10d_functional, torch.ops.spyre)
    for row in operators.table():
        for name in row.aten:
            assert any(hasattr(space, name) for space in namespaces), f"{row.published}: no operator {name}"


@pytest.mark.parametrize(
    ("op", "eager", "compiled"),
    [
        (aten.mm.default, "spyre_enabled", "spyre_enabled"),
        (aten.gelu.default, "not_implemented", "spyre_enabled"),
        (aten.add_.Tensor, "spyre_enabled", "spyre_enabled"),
        (aten.cos.default, "cpu_fallback", "cpu_fallback"),
        (aten.uniform_.default, "cpu_fallback", "not_implemented"),
        (aten.index_copy.default, "cpu_fallback", "spyre_enabled"),
        (aten.gather.default, "not_implemented", "not_implemented"),
        (aten.erfinv.default, "not_implemented", "not_implemented"),
    ],
    ids=str,
)
def test_states(op, eager, compiled):
    assert operators.state_of(op, compiled=False) == eager
    assert operators.state_of(op, compiled=True) == compiled


def state(op, *operands):
    return operators.state_with_operands(op, operands, compiled=True)


def test_dtypes_and_spans_change_the_state():
    small = ((2, 64), torch.float16)
    assert state(aten.mm.default, small, ((64, 64), torch.float16)) == "spyre_enabled"
    assert state(aten.mm.default, ((2, 64), torch.float32), ((64, 64), torch.float32)) == "not_implemented"
    assert state(aten.add.Tensor, ((2,), torch.int64)) == "not_implemented"
    assert state(aten.embedding.default, ((9, 64), torch.float16), ((2,), torch.int64)) == "spyre_enabled"
    assert state(aten.add.Tensor, ((2,), torch.float32)) == "spyre_enabled"
    assert state(aten.tanh.default, ((2,), torch.float32)) == "not_implemented"
    qwen = ((2048, 151936), torch.float16)
    padded = ((2048, 152000), torch.float16)
    assert state(aten.mm.default, small, qwen) == "spyre_failed"
    assert state(aten.mm.default, small, padded) == "spyre_enabled"


@pytest.mark.parametrize(
    ("overload", "kind"),
    [
        ("aten.native_layer_norm.default", "decomposed"),
        ("aten.silu_.default", "custom"),
        ("aten.mm.default", None),
        ("aten.sin.default", None),
        ("other.unheard_of.default", None),
        ("word", None),
    ],
)
def test_what_runs_in_an_equivalent_form(overload, kind):
    assert operators.replacement(overload) == kind
