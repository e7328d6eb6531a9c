"""Each planned or observed case is one row, whose numbers are the worst of its outputs."""

from __future__ import annotations

import math

import pytest

from harness.records import FolderSource, Status
from harness.report.rows import COLUMNS, error_ratio, missing_row, origin, result_row, rows
from tests.report.synthetic import Spec, cases, result, runs

SPEC = Spec(models=1, runs=1)


@pytest.fixture
def case():
    return next(cases(SPEC))


def test_a_row_for_each_result_and_each_missing_case():
    run = runs(Spec(models=2, runs=1, missing=1, all_pass=True))[0]
    table = list(rows(run.run.run_id, run.run.plan, run.results))
    assert [row.case_id for row in table] == [case.id for case in run.run.plan]
    assert [row.status for row in table] == ["PASS"] * 7 + ["NOTRUN"]
    assert table[-1].outcome == "no_result"


def test_the_row_of_a_pass(case):
    row = result_row("r1", result(case, Status.PASS, SPEC, 0, 0))
    assert (row.model, row.task, row.target, row.mode, row.dtype) == (
        "granite-1.0-0b",
        "causal-lm",
        "spyre",
        "eager",
        "float16",
    )
    assert (row.status, row.outcome, row.stage, row.flags) == ("PASS", "completed", "compare", "near_tie")
    assert row.error_ratio == pytest.approx(row.relative_l2 / row.control_relative_l2)
    assert row.top1_agreement == 58 / 59
    assert (row.tensors, row.elements, row.revision) == (1, 2_900_000, "5" * 40)


def test_the_verdicts_own_ratio_wins_over_the_recomputed_one(case):
    seen = result(case, Status.PASS, SPEC, 0, 0)
    finding = seen.verdict.findings[0].model_copy(update={"value": 3.25})
    stated = seen.model_copy(update={"verdict": seen.verdict.model_copy(update={"findings": (finding,)})})
    assert error_ratio(stated) == 3.25
    silent = seen.model_copy(update={"verdict": seen.verdict.model_copy(update={"findings": ()})})
    output = seen.comparison.outputs[0]
    assert error_ratio(silent) == output.candidate.relative_l2 / output.control.relative_l2


@pytest.mark.parametrize(("ours", "theirs", "expected"), [(0.0, 0.0, None), (1e-3, 0.0, math.inf), (None, 1e-3, None)])
def test_a_ratio_over_a_perfect_control(case, ours, theirs, expected):
    seen = result(case, Status.PASS, SPEC, 0, 0)
    output = seen.comparison.outputs[0]
    output = output.model_copy(
        update={
            "candidate": output.candidate.model_copy(update={"relative_l2": ours}),
            "control": output.control.model_copy(update={"relative_l2": theirs}),
        }
    )
    seen = seen.model_copy(
        update={
            "verdict": seen.verdict.model_copy(update={"findings": ()}),
            "comparison": seen.comparison.model_copy(update={"outputs": (output,)}),
        }
    )
    assert error_ratio(seen) == expected


def test_nan_is_worse_than_any_number(case):
    seen = result(case, Status.FAIL, SPEC, 3, 0)
    output = seen.comparison.outputs[0]
    bad = output.model_copy(
        update={"name": "b", "candidate": output.candidate.model_copy(update={"relative_l2": math.nan})}
    )
    seen = seen.model_copy(update={"comparison": seen.comparison.model_copy(update={"outputs": (output, bad)})})
    assert math.isnan(result_row("r", seen).relative_l2)


def test_local_folders_are_named_by_their_last_part_only(case):
    seen = result(case, Status.PASS, SPEC, 0, 0)
    checkpoint = seen.checkpoint.model_copy(update={"origin": "folder:/home/u/weights/tiny"})
    assert origin(seen.model_copy(update={"checkpoint": checkpoint})) == "folder:tiny"
    unresolved = case.model_copy(update={"source": FolderSource(folder="/home/u/weights/tiny/")})
    assert origin(seen.model_copy(update={"checkpoint": None, "case": unresolved})) == "folder:tiny"


def test_a_missing_row_has_no_numbers(case):
    row = missing_row("r1", case)
    numbers = {
        column: getattr(row, column) for column in COLUMNS if column in ("error_ratio", "seconds", "device_share")
    }
    assert numbers == {"error_ratio": None, "seconds": None, "device_share": None}
