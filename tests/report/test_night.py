"""Only a complete run with evidence and nothing unexpected is good."""

from __future__ import annotations

import pytest

from harness.records import ExpectationMode, Status
from harness.report.completeness import Completeness
from harness.report.night import night
from tests.report.synthetic import Spec, runs

RUN = runs(Spec(models=1, runs=1, all_pass=True))[0].run


def facts(planned=4, observed=4, **changes):
    base = {"missing": (), "unplanned": (), "repeated": (), "finished": True, "miscounted": ()}
    return Completeness(planned=planned, observed=observed, **{**base, **changes})


@pytest.mark.parametrize(
    ("counts", "exit_status", "level", "sentence"),
    [
        ({Status.PASS: 3, Status.XFAIL: 1}, 0, "good", "All 4 cases behaved as expected: 3 PASS, 1 XFAIL."),
        ({Status.PASS: 3, Status.FAIL: 1}, 1, "bad", "1 of 4 cases needs attention: 1 FAIL."),
        (
            {Status.PASS: 2, Status.ERROR: 1, Status.XPASS: 1},
            3,
            "bad",
            "2 of 4 cases need attention: 1 ERROR, 1 XPASS.",
        ),
        ({Status.PASS: 3, Status.NOTRUN: 1}, 1, "attention", "1 of 4 cases needs attention: 1 NOTRUN."),
        (
            {Status.PASS: 3, Status.NOTRUN: 1},
            0,
            "attention",
            "1 NOTRUN of 4 cases, which the profile allows; the others are as expected.",
        ),
        ({Status.SKIP: 4}, 0, "attention", "Nothing was verified: all 4 cases were skipped."),
        ({Status.PASS: 4}, 3, "attention", "All 4 cases are as expected, yet the run ended with exit status 3."),
    ],
)
def test_the_verdict_of_a_complete_run(counts, exit_status, level, sentence):
    judged = night(RUN.model_copy(update={"exit_status": exit_status}), counts, facts())
    assert (judged.level, judged.sentence) == (level, sentence)


@pytest.mark.parametrize(
    ("counts", "exit_status", "level", "sentence"),
    [
        ({Status.PASS: 3, Status.FAIL: 1}, 0, "attention", "3 PASS, 1 FAIL."),
        ({Status.PASS: 4}, 0, "good", "4 PASS."),
        ({Status.FAIL: 3, Status.ERROR: 1}, 3, "bad", "4 of 4 cases need attention: 1 ERROR, 3 FAIL."),
        ({Status.SKIP: 4}, 0, "attention", "Nothing was verified: all 4 cases were skipped."),
    ],
)
def test_a_run_that_sets_expectations_aside_says_so(counts, exit_status, level, sentence):
    run = RUN.model_copy(update={"exit_status": exit_status, "expectations": ExpectationMode.VALIDATE})
    judged = night(run, counts, facts())
    assert (judged.level, judged.sentence) == (level, f"Expectations were set aside. {sentence}")


def test_an_incomplete_run_is_never_good():
    judged = night(RUN, {Status.PASS: 3, Status.NOTRUN: 1}, facts(observed=3, missing=("x",)))
    assert judged.level == "incomplete"
    assert judged.sentence == "Incomplete: 3 of 4 planned cases ended; 1 NOTRUN."


def test_an_empty_run_proves_nothing():
    judged = night(RUN, {}, facts(planned=0, observed=0))
    assert judged.level == "empty"
