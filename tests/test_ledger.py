"""Where a run's time went, and what later runs go by."""

from __future__ import annotations

import pytest

from harness.ledger import Ledger
from harness.records import Attempt, Dtype, Localization, Mode, Observation, Outcome, OutcomeKind, Role, Stage
from tests.test_store import result

DONE = Outcome(kind=OutcomeKind.COMPLETED)


def reference(cached: bool) -> Observation:
    return Observation(
        role=Role.REFERENCE,
        target="cpu",
        dtype=Dtype.FLOAT32,
        mode=Mode.EAGER,
        threads=1,
        weights_digest="ab",
        seconds={Stage.LOAD: 1.0, Stage.RUN: 2.0},
        cached=cached,
    )


def crashed(seconds: float) -> Attempt:
    return Attempt(outcome=Outcome(kind=OutcomeKind.CRASH), seconds=seconds)


def test_seconds_are_added_by_stage_and_the_rest_is_waiting() -> None:
    ledger = Ledger()
    ledger.enter(
        result("a", seconds={Stage.LOAD: 1.0, Stage.RUN: 4.0}, observations={Role.REFERENCE: reference(cached=False)})
    )
    both = {Role.REFERENCE: reference(cached=True), Role.CONTROL: reference(cached=False)}
    ledger.enter(result("b", seconds={Stage.RUN: 0.5}, observations=both))
    ledger.enter(result("c", attempts=(crashed(7.0), crashed(2.0))))
    found = Localization(case="d", sentence="at the embedding", limit=4.0, seconds=5.0)
    ledger.enter(result("d").model_copy(update={"localization": found}))
    told = ledger.seconds(busy=25.0)
    wall = told.pop("wall")
    assert told == {"load": 1.0, "run": 4.5, "reference": 6.0, "localization": 5.0, "retries": 7.0, "waiting": 1.5}
    assert 0 <= wall < 60


def test_durations_are_of_cases_that_said_something() -> None:
    ledger = Ledger()
    twice = (Attempt(outcome=Outcome(kind=OutcomeKind.CRASH), seconds=2.0), Attempt(outcome=DONE, seconds=3.0))
    ledger.enter(result("a", attempts=twice))
    ledger.enter(result("never-began"))
    gone = result("b", attempts=twice).model_copy(update={"outcome": Outcome(kind=OutcomeKind.CANCELLED)})
    ledger.enter(gone)
    assert ledger.durations == {"a/causal-lm/spyre-eager-float16": 5.0}


@pytest.mark.parametrize(
    ("seconds", "lines"),
    [
        (
            {"wall": 10.0, "run": 5.0, "load": 12.0, "place": 0.01},
            ["time: 10.0 s, 2 workers 85% busy: load 12.0 s, run 5.0 s"],
        ),
        ({"wall": 10.0, "waiting": 0.0}, []),
        ({}, []),
    ],
)
def test_one_line_for_people(seconds: dict[str, float], lines: list[str]) -> None:
    assert Ledger.lines(seconds, 2) == lines
