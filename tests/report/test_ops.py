"""Ops over all cases: codes per case, calls per state, variants with an example."""

from __future__ import annotations

from harness.records import OpState, OpUse, Role, Status, TensorSpec
from harness.report.ops import OpTable
from tests.report.synthetic import Spec, cases, result

SPEC = Spec(models=1, runs=1)
SMALL = TensorSpec(shape=(1, 64), strides=(64, 1), dtype="float16")
LARGE = TensorSpec(shape=(11, 64), strides=(64, 1), dtype="float16")


def with_ops(case, *uses):
    seen = result(case, Status.PASS, SPEC, 0, 0)
    candidate = seen.observations[Role.CANDIDATE]
    device = candidate.device.model_copy(update={"ops": uses})
    return seen.model_copy(update={"observations": {Role.CANDIDATE: candidate.model_copy(update={"device": device})}})


def use(op, state, count, *operands):
    return OpUse(op=op, state=state, count=count, operands=operands)


def test_the_table_of_two_cases():
    first, second, third = list(cases(SPEC))[:3]
    table = OpTable()
    table.add(with_ops(first, use("mm", OpState.SPYRE_ENABLED, 3, SMALL), use("mm", OpState.SPYRE_FAILED, 1, LARGE)))
    table.add(with_ops(second, use("mm", OpState.SPYRE_ENABLED, 5, SMALL), use("sin", OpState.CPU_FALLBACK, 2, SMALL)))
    ids = [second.id, first.id, third.id]
    index = table.index(ids)
    assert index["ops"] == ["mm", "sin"]
    assert index["calls"] == [[8, 0, 1, 0], [0, 2, 0, 0]]
    assert [index["sets"][number] if number >= 0 else None for number in index["case"]] == [[0, 5], [0, 2], None]
    assert table.variants(ids) == [
        [[0, 8, 2, 1, (((1, 64), (64, 1), "float16"),)], [2, 1, 1, 1, (((11, 64), (64, 1), "float16"),)]],
        [[1, 2, 1, 0, (((1, 64), (64, 1), "float16"),)]],
    ]


def test_costs_name_the_largest_padding_first():
    table = OpTable()
    kept = list(cases(SPEC))
    for case, padded in zip(kept, (0, 10, 30, 20), strict=True):
        seen = with_ops(case)
        candidate = seen.observations[Role.CANDIDATE]
        compiled = result(kept[1], Status.PASS, SPEC, 0, 0).observations[Role.CANDIDATE].device.compiled
        compiled = compiled.model_copy(update={"padded_bytes": padded, "fallback_steps": 0})
        device = candidate.device.model_copy(update={"compiled": compiled})
        table.add(
            seen.model_copy(update={"observations": {Role.CANDIDATE: candidate.model_copy(update={"device": device})}})
        )
    assert table.index([case.id for case in kept])["padding"] == [[30, 0, 0, 2], [20, 0, 0, 3], [10, 0, 0, 1]]
