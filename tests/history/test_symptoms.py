"""Tests of causes that nothing recorded explains: unrelated changes apart, one defect over many cases together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from harness.history import RunView, Trait, causes, changes
from harness.history.views import trait
from harness.records import (
    CaseResult,
    Localization,
    ModuleError,
    OpError,
    Outcome,
    OutcomeKind,
    Stage,
    Status,
    Verdict,
)
from tests.history.script import FIRST, night, sample
from tests.stored_runs import case

FAMILY = {"g1": "granite", "g2": "granite", "l1": "llama", "q1": "qwen", "b1": "bert"}
CRASH = {"kind": OutcomeKind.CRASH, "stage": Stage.RUN}


def name(model: str) -> str:
    return f"{model}/causal-lm/spyre-eager-float16"


def broken(at: int, places: Mapping[str, str], **rest: object) -> list[RunView]:
    """A good night and one in which these models fail, each with the place where it first goes wrong."""
    fails = {model: sample(name(model), status=Status.FAIL, **rest) for model in places}
    before = night(at - 1, *(sample(name(model)) for model in FAMILY))
    now = night(
        at,
        *(fails.get(model, sample(name(model))) for model in FAMILY),
        traits={name(model): Trait(FAMILY[model], place) for model, place in places.items()},
    )
    return [before, now]


def told(runs: list[RunView]) -> list[tuple[str, str]]:
    found = causes(changes(runs[:-1], runs[-1]), runs)
    return [(cause.name, " ".join(sorted(change.case.split("/")[0] for change in cause.changes))) for cause in found]


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ({"g1": "aten.mm", "l1": "aten.mm"}, [("regressed at aten.mm", "g1 l1")]),
        ({"g1": "aten.mm", "g2": "aten.exp"}, [("regressed at aten.mm", "g1"), ("regressed at aten.exp", "g2")]),
        ({"g1": "", "g2": ""}, [("regressed in granite, crash at run", "g1 g2")]),
        (
            {"g1": "", "l1": ""},
            [("regressed in granite, crash at run", "g1"), ("regressed in llama, crash at run", "l1")],
        ),
        ({"b1": "", "g1": "", "l1": ""}, [("regressed in many families, crash at run", "b1 g1 l1")]),
        (
            {"g1": "aten.mm", "g2": "", "l1": ""},
            [("regressed at aten.mm", "g1 g2"), ("regressed in llama, crash at run", "l1")],
        ),
        ({"b1": "", "g1": "aten.mm", "l1": ""}, [("regressed at aten.mm", "b1 g1 l1")]),
        (
            {"b1": "aten.exp", "g1": "aten.mm", "g2": "", "l1": ""},
            [
                ("regressed at aten.exp", "b1"),
                ("regressed at aten.mm", "g1"),
                ("regressed in many families, crash at run", "g2 l1"),
            ],
        ),
    ],
    ids=[
        "an op over families",
        "two ops in a family",
        "a family that was not searched",
        "two families",
        "many families",
        "joins the place in its family",
        "joins the only place of many families",
        "joins neither of two places",
    ],
)
def test_what_goes_together(places: Mapping[str, str], expected: list[tuple[str, str]]) -> None:
    assert told(broken(1, places, **CRASH)) == expected


def test_ends_and_directions_are_kept_apart_and_an_op_is_not() -> None:
    runs = broken(1, {"g1": "", "g2": "", "l1": "aten.mm", "q1": "aten.mm"}, **CRASH)
    samples = dict(runs[1].samples)
    for model in ("g2", "q1"):
        samples[name(model)] = sample(name(model), status=Status.FAIL)
    assert told([runs[0], replace(runs[1], samples=samples)]) == [
        ("regressed in granite, crash at run", "g1"),
        ("regressed in granite, outside_rule at compare", "g2"),
        ("regressed at aten.mm", "l1 q1"),
    ]


def test_steps_and_cases_that_are_gone_go_by_family() -> None:
    runs = [night(at, *(sample(name(model)) for model in FAMILY)) for at in range(9)]
    last = night(
        9,
        *(sample(name(model), error=0.03 if model in ("g1", "l1") else 0.01) for model in FAMILY if model != "b1"),
        traits={name(model): Trait(family) for model, family in FAMILY.items() if model != "b1"},
    )
    assert told([*runs, last]) == [
        ("drifted (worse) in granite, step in relative_l2", "g1"),
        ("drifted (worse) in llama, step in relative_l2", "l1"),
        ("gone in b1, not planned", "b1"),
    ]


def test_a_cause_keeps_its_key_when_further_cases_show_it() -> None:
    first, second = (broken(at, places, **CRASH) for at, places in ((1, {"g1": "aten.mm"}), (3, {"l1": "aten.mm"})))
    keys = [causes(changes(runs[:1], runs[1]), runs)[0].key for runs in (first, second)]
    assert keys[0] == keys[1]


def test_what_one_case_alone_has_changed_is_no_suspect_of_the_others() -> None:
    runs = broken(1, {"g1": "", "l1": ""}, **CRASH)
    samples = {**runs[1].samples, name("g1"): runs[1].samples[name("g1")]._replace(checkpoint="other")}
    assert told([runs[0], replace(runs[1], samples=samples)]) == [
        ("regressed with checkpoint other", "g1"),
        ("regressed in llama, crash at run", "l1"),
    ]


FIELDS = {
    "case": case("tiny").model_copy(update={"family": "llama"}),
    "outcome": Outcome(kind=OutcomeKind.COMPLETED),
    "verdict": Verdict(status=Status.FAIL, sentence="wrong"),
    "started": FIRST,
    "finished": FIRST,
}
MODULE = ModuleError(name="model.layers.3.self_attn (into o_proj)")


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (None, ""),
        (Localization(case="c", sentence="nothing", limit=3.0), ""),
        (
            Localization(case="c", module=MODULE, sentence="s", limit=3.0),
            "model.layers.*.self_attn (into o_proj) of llama",
        ),
        (
            Localization(case="c", module=MODULE, op=OpError(op="aten.mm.default"), sentence="s", limit=3.0),
            "aten.mm.default",
        ),
    ],
)
def test_where_a_result_first_goes_wrong(found: Localization | None, wrong: str) -> None:
    assert trait(CaseResult(**FIELDS, localization=found)) == Trait("llama", wrong)
    assert trait(CaseResult(**FIELDS | {"case": case("tiny")})) == Trait("tiny")
