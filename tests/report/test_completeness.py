"""A run that does not hold what it planned is incomplete, and says why."""

from __future__ import annotations

from harness.records import Status
from harness.report.completeness import completeness
from tests.report.synthetic import Spec, runs


def facts_of(run, results=None, damage=()):
    seen = list(run.results) if results is None else results
    return completeness(run.run, [(one.case.id, one.verdict.status) for one in seen], damage)


def test_a_whole_run_is_complete():
    facts = facts_of(runs(Spec(models=2, runs=1))[0])
    assert facts.complete
    assert (facts.planned, facts.observed, facts.problems) == (8, 8, ())


def test_planned_and_missing():
    facts = facts_of(runs(Spec(models=2, runs=1, missing=5, all_pass=True))[0])
    assert not facts.complete
    assert facts.problems == (
        "5 of 8 planned cases have no result: granite-1.0-0b/causal-lm/spyre-compiled-bfloat16, "
        "smollm-1.1-7b/causal-lm/spyre-eager-float16, smollm-1.1-7b/causal-lm/spyre-compiled-float16 and 2 more.",
    )


def test_unplanned_repeated_and_miscounted():
    run = runs(Spec(models=1, runs=1, all_pass=True))[0]
    seen = list(run.results)
    stray = seen[0].model_copy(update={"case": seen[0].case.model_copy(update={"id": "stray"})})
    facts = facts_of(run, [*seen, seen[0], stray])
    assert (facts.unplanned, facts.repeated) == (("stray",), (seen[0].case.id,))
    assert facts.miscounted == ("PASS 4 stated, 6 counted",)


def test_missing_cases_may_be_counted_as_notrun():
    run = runs(Spec(models=1, runs=1, missing=1, all_pass=True))[0]
    counting = run.run.model_copy(update={"totals": {Status.PASS: 3, Status.NOTRUN: 1}})
    pairs = [(one.case.id, one.verdict.status) for one in run.results]
    assert completeness(counting, pairs).miscounted == ()


def test_a_run_going_on_and_a_damaged_one_are_incomplete():
    run = runs(Spec(models=1, runs=1))[0]
    pairs = [(one.case.id, one.verdict.status) for one in run.results]
    going = completeness(run.run.model_copy(update={"finished": None, "totals": {}}), pairs)
    assert going.problems == ("The run has not finished.",)
    assert facts_of(run, damage=("cases.jsonl:4: torn line",)).problems == ("cases.jsonl:4: torn line",)


def test_nothing_planned_is_empty_and_not_complete():
    run = runs(Spec(models=0, runs=1))[0]
    facts = completeness(run.run, [])
    assert facts.empty
    assert not facts.complete
