"""Tests of the release gate: what refuses, what a waiver covers, the text to sign off."""

from __future__ import annotations

import hashlib
from datetime import date

import pytest

from harness.history import RunView, baseline, gate
from harness.records import ExpectationMode, OutcomeKind, Policy, Status
from tests.history.script import night, sample

A, B = (f"{name}/causal-lm/spyre-eager-float16" for name in "ab")
TODAY = date(2026, 3, 1)
WAIVER = {"cases": "b/*", "owner": "compiler team", "reason": "fix is under way", "expires": "2026-04-01"}


def policy(**rest: object) -> Policy:
    return Policy.model_validate({"version": 1, "require": [{"cases": "*"}]} | rest)


def run(**rest: object) -> RunView:
    return night(1, sample(A), sample(B, status=Status.FAIL, sentence="error ratio 40 > 4 at step 3."), **rest)


def said(view: RunView, rules: Policy, known: baseline.Baseline | None = None) -> list[str]:
    result = gate(view, rules, TODAY, known)
    return [one.text for one in result.objections if one.waiver is None]


def test_the_text_to_sign_off() -> None:
    result = gate(run(), policy(waivers=[WAIVER]), TODAY)
    body, _, seal = result.text.rpartition("\nseal: sha256 ")
    assert result.accepted
    assert body.splitlines()[0] == "# Release gate: ACCEPTED"
    assert body.splitlines()[4] == "- cases: PASS 1, FAIL 1"
    assert body.splitlines()[-3:] == [
        "## Waived (1)",
        "",
        f"- `{B}`: FAIL (completed) where PASS is required: error ratio 40 > 4 at step 3. Waived by compiler team "
        "until 2026-04-01: fix is under way",
    ]
    assert seal == hashlib.sha256(body.encode()).hexdigest() + "\n"
    assert gate(run(), policy(waivers=[WAIVER]), TODAY).text == result.text


def test_what_does_not_hold_refuses_unless_it_is_only_reported() -> None:
    refused, reported = gate(run(), policy(), TODAY), gate(run(), policy(mode="validate"), TODAY)
    assert (refused.accepted, reported.accepted) == (False, True)
    assert refused.text.startswith("# Release gate: REFUSED\n")
    assert reported.text.startswith("# Release gate: REPORTED (mode validate refuses nothing)\n")
    assert len(reported.objections) == 1


@pytest.mark.parametrize(
    ("view", "rules", "text"),
    [
        (night(1, sample(A)), policy(require=[{"cases": "z*"}]), "the requirement 'z*' matches no case, so it proves"),
        (night(1, sample(A), selection="-k a"), policy(), "the run is a part of its profile only: -k a"),
        (night(1, sample(A), finished=False), policy(), "the run has not ended"),
        (
            night(1, sample(A), damage=("cases.jsonl:2: torn", "x")),
            policy(),
            "the run is damaged: cases.jsonl:2: torn; and",
        ),
        (night(1, sample(A), planned=frozenset({A, B})), policy(), f"{B} was planned and has no result"),
        (
            night(1, sample(A), expectations=ExpectationMode.VALIDATE),
            policy(),
            "the run set expectations aside (validate), so nothing in it is known or unexpected",
        ),
        (night(1, sample(A, flags=("drilled",))), policy(), f"{A} ran with faults injected on purpose"),
        (night(1, sample(A)), policy(waivers=[WAIVER]), "the waiver of compiler team for 'b/*' is not needed"),
        (
            night(1, sample(A)),
            policy(waivers=[WAIVER | {"expires": "2026-03-01"}]),
            "the waiver of compiler team for 'b/*' expired on 2026-03-01",
        ),
        (night(1, sample(A, status=Status.XFAIL)), policy(), "XFAIL (completed) where PASS is required"),
        (night(1, sample(A, status=Status.ERROR)), policy(), "ERROR (harness_fault) where PASS is required"),
        (night(1, sample(A, status=Status.NOTRUN)), policy(), "NOTRUN (unavailable) where PASS is required"),
    ],
)
def test_what_refuses(view: RunView, rules: Policy, text: str) -> None:
    assert not gate(view, rules, TODAY).accepted
    assert [one.startswith(text) for one in said(view, rules)] == [True]


def test_an_empty_run_is_refused() -> None:
    assert not gate(night(1), policy(), TODAY).accepted


def test_what_the_policy_allows() -> None:
    assert said(night(1, sample(A, status=Status.NOTRUN)), policy(allow_notrun=[OutcomeKind.UNAVAILABLE])) == []
    rules = policy(require=[{"cases": "a/*"}, {"cases": "b/*", "status": ["PASS", "FAIL"]}])
    assert said(run(), rules) == []


def test_the_baseline_counts_in_both_directions_and_can_be_waived() -> None:
    known = baseline.update(None, night(0, sample(A, status=Status.FAIL), sample(B)))
    rules = policy(require=[{"cases": "a/*"}])
    assert said(run(), rules, known) == [
        "regressed against the baseline: PASS in the baseline, FAIL (outside_rule) now",
        "fixed against the baseline: FAIL (outside_rule) in the baseline, PASS now",
    ]
    waived = policy(require=[{"cases": "a/*"}], waivers=[WAIVER])
    assert [text[:5] for text in said(run(), waived, known)] == ["fixed"]


def test_a_waiver_covers_no_missing_case() -> None:
    view = night(1, sample(A), planned=frozenset({A, B}))
    assert f"{B} was planned and has no result" in said(view, policy(waivers=[WAIVER]))
