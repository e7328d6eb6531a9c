"""Tests of the labels of changes: one by one, then whole scripted histories."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.history import RunView, Sample, changes, diff, tell
from harness.records import ChangeKind, ExpectationMode, OutcomeKind, Stage, Status
from tests.history.script import LIMITS, environment, night, sample, script

FAIL = sample(status=Status.FAIL, sentence="error ratio 40 > 4")
PASS = sample()
UPGRADED = environment(torch="2.14.0")


def labels(*nights: Sample | RunView) -> list[tuple[str, str]]:
    """Return kind and direction of the changes of the last night."""
    runs = [one if isinstance(one, RunView) else night(at, one) for at, one in enumerate(nights)]
    return [(change.kind.value, change.direction) for change in changes(runs[:-1], runs[-1])]


def xfail(**rest: object) -> Sample:
    return sample(status=Status.XFAIL, expected="outside_rule", expectation_at="models.yaml:7", **rest)


@pytest.mark.parametrize(
    ("then", "now", "label"),
    [
        (PASS, PASS, []),
        (PASS, FAIL, [("regressed", "worse")]),
        (FAIL, FAIL, []),
        (FAIL, PASS, [("fixed", "better")]),
        (xfail(), xfail(), []),
        (xfail(), sample(status=Status.XPASS, expected="outside_rule"), [("stale_expectation", "better")]),
        (xfail(), PASS, [("fixed", "better")]),
        (xfail(), sample(status=Status.FAIL, kind=OutcomeKind.CRASH), [("regressed", "worse")]),
        (xfail(), FAIL, [("regressed", "worse")]),
        (PASS, xfail(), [("regressed", "worse")]),
        (FAIL, xfail(), [("relaxed", "neutral")]),
        (sample(status=Status.XPASS), PASS, []),
        (sample(status=Status.XPASS), FAIL, [("regressed", "worse")]),
        (sample(status=Status.XPASS), xfail(), [("flaky", "worse")]),
        (sample(status=Status.XPASS), sample(status=Status.XPASS), []),
        (PASS, sample(status=Status.NOTRUN), [("infra", "neutral")]),
        (PASS, sample(status=Status.ERROR), [("infra", "worse")]),
        (sample(status=Status.NOTRUN), sample(status=Status.NOTRUN), []),
        (sample(status=Status.NOTRUN), PASS, []),
        (PASS, sample(status=Status.SKIP, kind=OutcomeKind.EXCLUDED), [("gone", "worse")]),
        (sample(status=Status.SKIP), PASS, [("new", "neutral")]),
        (sample(status=Status.SKIP), sample(status=Status.SKIP), []),
        (PASS, sample(retried=(OutcomeKind.CRASH, OutcomeKind.COMPLETED)), [("flaky", "worse")]),
        (
            sample(status=Status.FAIL, kind=OutcomeKind.CRASH, stage=Stage.LOAD),
            FAIL,
            [("drifted", "better")],
        ),
        (FAIL, sample(status=Status.FAIL, kind=OutcomeKind.CRASH, stage=Stage.RUN), [("regressed", "worse")]),
        (PASS, sample(limits=(("cosine", 0.9), ("error_ratio", 4.0))), [("relaxed", "neutral")]),
        (PASS, sample(limits=(("cosine", 0.99), ("error_ratio", 8.0))), [("relaxed", "neutral")]),
        (PASS, sample(limits=(("cosine", 0.999), ("error_ratio", 2.0))), []),
        (PASS, sample(inputs="others"), [("relaxed", "neutral")]),
        (FAIL, sample(limits=(("cosine", 0.9),)), [("relaxed", "neutral")]),
        (FAIL, sample(limits=(("cosine", 0.9),), error=0.001), [("fixed", "better"), ("relaxed", "neutral")]),
        (PASS, sample(status=Status.FAIL, limits=(("error_ratio", 1.0),)), [("tightened", "neutral")]),
        (PASS, sample(status=Status.FAIL, limits=(("error_ratio", 1.0),), error=1.0), [("regressed", "worse")]),
    ],
)
def test_pairs_of_nights(then: Sample, now: Sample, label: list[tuple[str, str]]) -> None:
    assert sorted(labels(then, now)) == label


def test_the_first_run_has_no_baseline() -> None:
    assert labels(FAIL) == []


def test_a_night_without_result_forgets_nothing() -> None:
    lost = sample(status=Status.NOTRUN)
    assert labels(PASS, lost, FAIL) == [("regressed", "worse")]
    assert labels(PASS, lost, lost, PASS) == []
    (change,) = changes([night(0, PASS), night(1, lost)], night(2, FAIL))
    assert (change.before, change.since, change.status_before) == ("night-000", "night-002", Status.PASS)


def test_order_of_files_does_not_matter_and_the_future_does_not_count() -> None:
    runs = [night(at, PASS if at < 6 else FAIL) for at in range(12)]
    Random(1).shuffle(runs)
    found = {run.run_id: [c.kind for c in changes(runs, run)] for run in runs}
    assert {name for name, kinds in found.items() if kinds} == {"night-006"}


def test_runs_that_set_expectations_aside_are_read_in_their_light_where_two_runs_are_compared() -> None:
    names = [f"{name}/causal-lm/spyre-eager-float16" for name in "abcd"]
    known = {"expected": "outside_rule", "expectation_at": "models.yaml:7"}
    gated = night(0, *(sample(name, Status.XFAIL, **known) for name in names[:3]), sample(names[3]))
    crash = {"kind": OutcomeKind.CRASH, "stage": Stage.RUN}
    aside = night(
        1,
        sample(names[0], Status.FAIL, **known),
        sample(names[1], Status.FAIL, **crash, **known),
        sample(names[2], Status.PASS, **known),
        sample(names[3], Status.FAIL),
        expectations=ExpectationMode.VALIDATE,
    )
    told = [(change.case[0], change.kind, change.status) for change in diff(gated, aside)]
    assert told == [
        ("b", ChangeKind.REGRESSED, Status.FAIL),
        ("d", ChangeKind.REGRESSED, Status.FAIL),
        ("c", ChangeKind.STALE_EXPECTATION, Status.XPASS),
    ]


def test_other_lanes_do_not_count_unless_asked() -> None:
    other = replace(night(0, PASS), lane="s390x torch_spyre")
    assert changes([other], night(1, FAIL)) == ()
    assert [change.kind for change in diff(other, night(1, FAIL))] == [ChangeKind.REGRESSED]


def test_one_night_s_failure_is_suspected_then_known_as_flaky() -> None:
    first, second = changes([night(0, PASS)], night(1, FAIL)), labels(PASS, FAIL, PASS)
    assert "nothing recorded differs" in first[0].sentence
    assert second == [("flaky", "worse")]
    assert labels(PASS, FAIL, PASS, PASS, FAIL) == [("flaky", "worse")]


def test_a_failure_that_an_upgrade_brings_and_another_takes_is_no_flake() -> None:
    nights = [night(0, PASS), night(1, FAIL, env=UPGRADED), night(2, PASS)]
    assert labels(*nights) == [("fixed", "better")]
    assert labels(night(0, PASS), night(1, FAIL, env=UPGRADED), night(2, FAIL, env=UPGRADED)) == []


def test_a_flaky_case_that_fails_for_good_has_regressed() -> None:
    past = [PASS, FAIL, PASS, PASS, PASS, PASS]
    reports = [labels(*past, *[FAIL] * count) for count in range(1, 9)]
    flat = [kind for report in reports for kind, _ in report]
    assert flat == ["flaky", "regressed"]


def test_partial_runs_make_nothing_gone_or_new() -> None:
    other = sample("other/causal-lm/spyre-eager-float16")
    part = night(1, PASS, selection="--model m")
    assert labels(night(0, PASS, other), part) == []
    assert labels(night(0, PASS, other), part, night(2, PASS, other)) == []
    assert labels(night(0, PASS, other), night(1, PASS)) == [("gone", "worse")]
    assert labels(night(0, PASS, other), night(1, PASS), night(2, PASS)) == []
    assert labels(night(0, PASS, other), night(1, PASS), night(2, PASS, other)) == [("new", "neutral")]
    assert labels(night(0, PASS), night(1, other)) == [("gone", "worse"), ("new", "neutral")]
    assert labels(night(0, PASS, other), night(1, PASS, profile="smoke")) == []


def test_what_was_planned_and_has_no_result_is_incomplete() -> None:
    cut = night(1, planned=frozenset({PASS.case}), finished=False)
    assert labels(night(0, PASS), cut) == [("incomplete", "worse")]
    assert labels(cut) == [("incomplete", "worse")]
    assert labels(night(0, PASS), cut, night(2, PASS)) == []


def test_drift_inside_pass() -> None:
    runs = [night(at, sample(error=0.01)) for at in range(9)]
    (change,) = changes(runs, night(9, sample(error=0.02)))
    assert (change.kind, change.direction, change.metric) == (ChangeKind.DRIFTED, "worse", "relative_l2")
    assert (change.value_before, change.value) == (pytest.approx(0.01), pytest.approx(0.02))
    assert change.sentence == "error went from 0.01 to 0.02 (2.00 times) inside PASS"


def test_drift_stays_visible_under_a_loosened_limit_and_starts_over_with_new_inputs() -> None:
    runs = [night(at, sample(error=0.01)) for at in range(9)]
    loose = (("cosine", 0.9), *LIMITS[1:])
    assert labels(*runs, sample(error=0.02, limits=loose)) == [("drifted", "worse"), ("relaxed", "neutral")]
    assert labels(*runs, sample(error=0.02, inputs="others")) == [("relaxed", "neutral")]


def test_a_known_failure_that_gets_much_worse_has_regressed() -> None:
    runs = [night(at, xfail(error=0.02)) for at in range(9)]
    assert labels(*runs, xfail(error=0.9)) == [("regressed", "worse")]
    assert labels(*runs, xfail(error=0.025)) == [("drifted", "worse")]


def test_a_young_known_failure_is_held_against_the_few_results_that_it_has() -> None:
    """A cosine that falls from 0.98 to 0.10 is an error that grows from 0.2 to 1.3."""
    runs = [night(at, xfail(error=error)) for at, error in enumerate((0.2, 0.21, 1.3, 1.3, 0.2, 1.3))]
    found = [[change.kind.value for change in changes(runs[:at], run)] for at, run in enumerate(runs)]
    assert found == [[], [], ["regressed"], [], [], []]
    (change,) = diff(runs[0], runs[2])
    assert (change.kind, change.sentence) == ("regressed", "error went from 0.2 to 1.3 (6.50 times) inside XFAIL")
    assert diff(runs[2], runs[0]) == ()


def test_undefined_numbers_are_no_trend() -> None:
    runs = [night(at, sample(error=None if at % 2 else 0.0, seconds=float("inf"))) for at in range(12)]
    assert labels(*runs, sample(error=float("nan"))) == []


def test_an_unexpected_pass_names_the_line_to_remove() -> None:
    now = sample(status=Status.XPASS, expected="outside_rule", expectation_at="models.yaml:7")
    (change,) = changes([night(0, xfail())], night(1, now))
    assert change.sentence == "passes, though outside_rule is expected; remove the entry at models.yaml:7"


NUMBER = st.sampled_from([None, 0.0, 0.01, 0.02, 5.0, float("nan"), float("inf")])
SAMPLES = st.builds(
    sample,
    status=st.sampled_from(Status),
    kind=st.sampled_from([OutcomeKind.COMPLETED, OutcomeKind.CRASH, OutcomeKind.UNAVAILABLE]),
    stage=st.sampled_from([None, *Stage]),
    error=NUMBER,
    seconds=NUMBER,
    inputs=st.sampled_from("ij"),
    limits=st.sampled_from([(), LIMITS, (("cosine", 0.5), ("kl", 1.0))]),
    retried=st.sampled_from([(), (OutcomeKind.CRASH, OutcomeKind.COMPLETED)]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(SAMPLES, min_size=1, max_size=15))
def test_any_history_is_told_consistently(samples: list[Sample]) -> None:
    runs = [night(at, one) for at, one in enumerate(samples)]
    found = changes(runs[:-1], runs[-1])
    assert all(change.since <= change.run and (change.before or "") < change.since for change in found)
    told = [change.kind for change in found if change.metric is None]
    assert len(told) == len(set(told)) or told.count(ChangeKind.FLAKY) == 2
    assert not {ChangeKind.REGRESSED, ChangeKind.FIXED} <= set(told)
    if len(samples) > 1 and samples[-1] == samples[-2] and not samples[-1].retried:
        assert {ChangeKind.FIXED, ChangeKind.GONE, ChangeKind.NEW, ChangeKind.INFRA}.isdisjoint(told)
    assert tell(found, runs).startswith(f"# Changes of {runs[-1].run_id}\n")


@pytest.mark.parametrize("seed", range(4))
def test_scripted_history(seed: int) -> None:
    story = script(seed)
    found = set()
    for at, run in enumerate(story.runs):
        past = Random(at).sample(story.runs[:at], at)
        found |= {(c.case, c.kind, c.since, c.metric) for c in changes(past, run)}
    assert found == story.expected
    assert {label for _, label, _, _ in found} == set(ChangeKind) - {ChangeKind.TIGHTENED}
