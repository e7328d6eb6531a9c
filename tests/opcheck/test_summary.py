from __future__ import annotations

from datetime import UTC, datetime

from harness.opcheck import render, summarize
from harness.records import (
    Case,
    CaseResult,
    DeviceUse,
    Dtype,
    FolderSource,
    Inputs,
    Mode,
    Observation,
    OpState,
    OpUse,
    Outcome,
    OutcomeKind,
    Role,
    Status,
    Task,
    TensorSpec,
    Verdict,
)

NOW = datetime(2026, 11, 30, tzinfo=UTC)
COS, MM = "aten.cos.default", "aten.mm.default"
SMALL = TensorSpec(shape=(2, 2), strides=(2, 1), dtype="float16")
LARGE = TensorSpec(shape=(8, 8), strides=(8, 1), dtype="float16")


def use(op: str, state: OpState, operand: TensorSpec, **known: object) -> OpUse:
    return OpUse(op=op, state=state, count=3, operands=(operand,)).model_copy(update=known)


def result(model: str, *ops: OpUse) -> CaseResult:
    case = Case(
        id=f"{model}/embedding/spyre-eager-float16",
        model=model,
        task=Task.EMBEDDING,
        target="spyre",
        mode=Mode.EAGER,
        dtype=Dtype.FLOAT16,
        source=FolderSource(folder=model),
        inputs=Inputs(),
    )
    candidate = Observation(
        role=Role.CANDIDATE,
        target="spyre",
        dtype=Dtype.FLOAT16,
        mode=Mode.EAGER,
        threads=1,
        weights_digest="",
        device=DeviceUse(ops=ops),
    )
    return CaseResult(
        case=case,
        outcome=Outcome(kind=OutcomeKind.COMPLETED),
        verdict=Verdict(status=Status.PASS, sentence=""),
        observations={Role.CANDIDATE: candidate},
        started=NOW,
        finished=NOW,
    )


def test_a_variant_of_several_models_counts_once_in_its_gravest_state() -> None:
    reports = summarize(
        [
            result("a", use("aten.mm.default", OpState.SPYRE_ENABLED, SMALL, checked=True)),
            result("b", use("aten.mm.default", OpState.SPYRE_FAILED, SMALL, checked=True, relative_l2=0.5)),
            result("c", use("aten.mm.default", OpState.SPYRE_ENABLED, LARGE)),
        ]
    )
    (report,) = reports
    assert (report.state, report.models, report.blocked) == (OpState.SPYRE_FAILED, ("a", "b", "c"), ("b",))
    assert [one.operands for one in report.passing] == [(LARGE,)]
    assert [(one.operands, one.count, one.relative_l2) for one in report.failing] == [((SMALL,), 6, 0.5)]
    assert report.checked == 1


def test_ops_that_block_most_models_come_first() -> None:
    reports = summarize(
        [
            result(
                "a",
                use("aten.eq.Scalar", OpState.NOT_IMPLEMENTED, SMALL),
                use("aten.cos.default", OpState.CPU_FALLBACK, SMALL),
            ),
            result(
                "b",
                use("aten.eq.Scalar", OpState.NOT_IMPLEMENTED, LARGE),
                use("aten.mm.default", OpState.SPYRE_ENABLED, SMALL),
            ),
        ]
    )
    assert [(one.op, one.state.value, len(one.blocked)) for one in reports] == [
        ("aten.eq.Scalar", "not_implemented", 2),
        ("aten.cos.default", "cpu_fallback", 0),
        ("aten.mm.default", "spyre_enabled", 0),
    ]
    assert render(reports).splitlines()[1].split() == ["aten.eq.Scalar", "not_implemented", "0", "2", "0", "2", "2"]


def test_in_place_and_functional_forms_are_one_op() -> None:
    (report,) = summarize(
        [
            result(
                "a",
                use("aten.add_.Tensor", OpState.SPYRE_ENABLED, SMALL),
                use("aten.add.Tensor", OpState.SPYRE_ENABLED, LARGE),
            )
        ]
    )
    assert (report.op, len(report.passing)) == ("aten.add.Tensor", 2)
