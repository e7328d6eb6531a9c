"""Limits, drills and attempts of the processes that the pipeline starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.options import parse_drill
from harness.processes import Processes, ended_differently
from harness.records import Attempt, Outcome, OutcomeKind, Stage
from harness.settings import Settings
from tests.test_store import case

GIB = 1 << 30


def processes(tmp_path: Path, **changes: object) -> Processes:
    fields = {
        "manifest_path": tmp_path / "models.yaml",
        "cache": tmp_path,
        "run_directory": tmp_path / "run",
        "memory_limit": 2 * GIB,
        "workers": 4,
    }
    return Processes(Settings(**(fields | changes)), str, lambda *_: None)


def test_a_process_may_use_its_share_or_what_it_is_known_to_need(tmp_path: Path) -> None:
    own = processes(tmp_path)
    assert own.memory == int(2 * GIB * 0.95)
    assert own._limits(case("unknown")).memory == own.memory // 4
    large = case("large").model_copy(update={"parameters": 50_000_000})
    known = own._limits(large).memory
    assert known is not None
    assert own.memory // 4 < known < own.memory
    huge = case("huge").model_copy(update={"parameters": 10**10})
    assert own._limits(huge).memory == own.memory
    limits = processes(tmp_path, stall=7.0)._limits(case("a"))
    assert (limits.stall, limits.of(Stage.COMPILE), limits.of(Stage.LOAD)) == (7.0, 900, 300)


@pytest.mark.parametrize(
    ("drill", "process", "number", "strikes"),
    [
        ("*:run:exit", "a/causal-lm/spyre", 1, True),
        ("*:run:exit", "a/causal-lm/spyre", 2, True),
        ("*:run:exit@1", "a/causal-lm/spyre", 1, True),
        ("*:run:exit@1", "a/causal-lm/spyre", 2, False),
        ("b/*:run:exit", "a/causal-lm/spyre", 1, False),
        ("*:run:exit", "reference/a/causal-lm/spyre", 1, False),
        ("reference/a/*:run:exit", "reference/a/causal-lm/spyre", 1, True),
        ("reference/*:run:exit", "a/causal-lm/spyre", 1, False),
        ("*:run:exit", "probe/spyre", 1, False),
        ("probe/*:run:exit", "probe/spyre", 1, True),
    ],
)
def test_a_drill_strikes_candidates_unless_it_names_another_process(
    tmp_path: Path, drill: str, process: str, number: int, strikes: bool
) -> None:
    parsed = parse_drill(drill)
    assert processes(tmp_path, drills=(parsed,))._drills(process, number) == ((parsed,) if strikes else ())
    assert str(parsed) == drill


def attempt(kind: OutcomeKind, what: str = "candidate") -> Attempt:
    return Attempt(outcome=Outcome(kind=kind), seconds=1, what=what)


def test_flaky_means_that_the_same_process_ended_differently() -> None:
    crash, done = attempt(OutcomeKind.CRASH), attempt(OutcomeKind.COMPLETED)
    assert ended_differently([crash, done])
    assert not ended_differently([crash, crash])
    assert not ended_differently([])
    assert not ended_differently([attempt(OutcomeKind.COMPLETED, "reference"), crash])
