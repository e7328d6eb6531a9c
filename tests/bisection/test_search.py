"""Tests of the search: ends first, halving, what cannot be tested, two packages, interruption."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.bisection import Answer, Axis, Finding, Journal, Reading, bisect
from harness.errors import HarnessError, UsageError

SEVEN = Axis("torch", tuple(f"2.{i}" for i in range(7)))
OTHER = Axis("transformers", tuple(f"5.{i}" for i in range(5)))


def at_least(package: str, version: str) -> Callable[[dict[str, str]], bool]:
    return lambda pins: float(pins[package]) >= float(version)


def search(
    bad: Callable[[dict[str, str]], bool],
    *axes: Axis,
    untestable: tuple[str, ...] = (),
    journal: Journal | None = None,
) -> tuple[Finding, list[dict[str, str]]]:
    asked: list[dict[str, str]] = []

    def probe(pins: dict[str, str]) -> Answer:
        asked.append(pins)
        if set(pins.values()) & set(untestable):
            return Answer(Reading.UNTESTABLE, "no wheel")
        return Answer(Reading.BAD if bad(pins) else Reading.GOOD)

    return bisect(axes, probe, journal or Journal(None, "s")), asked


def test_the_first_bad_release_and_its_neighbours() -> None:
    found, asked = search(at_least("torch", "2.4"), SEVEN)
    assert (found.kind, found.sentence) == ("found", "torch 2.3 is good, 2.4 is bad")
    assert [pins["torch"] for pins in asked] == ["2.0", "2.0", "2.6", "2.6", "2.3", "2.4", "2.3", "2.4"]


@pytest.mark.parametrize("first_bad", range(1, 7))
def test_each_place(first_bad: int) -> None:
    found, _ = search(at_least("torch", f"2.{first_bad}"), SEVEN)
    assert (found.culprits[0].last_good, found.culprits[0].first_bad) == (f"2.{first_bad - 1}", f"2.{first_bad}")


def test_ends_are_proven_first() -> None:
    found, asked = search(lambda pins: False, SEVEN)
    assert (found.kind, found.sentence) == (
        "not_reproduced",
        "the bad end torch 2.6 is good: there is nothing to bisect",
    )
    assert len(asked) == 4
    found, asked = search(lambda pins: True, SEVEN)
    assert (found.kind, len(asked)) == ("not_reproduced", 2)


def test_a_flaky_case_is_said_and_not_bisected() -> None:
    turn = cycle([False, True])
    found, asked = search(lambda pins: next(turn), SEVEN)
    assert found.sentence == "torch 2.0 is bad and good in turn: the case is flaky, so not bisected"
    assert (found.kind, len(asked)) == ("flaky", 2)


def test_releases_that_cannot_be_tested_are_stepped_over_and_named() -> None:
    found, _ = search(at_least("torch", "2.4"), SEVEN, untestable=("2.3", "2.5"))
    assert found.sentence == "torch 2.2 is good, 2.4 is bad; 2.3 between them cannot be tested"
    found, _ = search(at_least("torch", "2.4"), SEVEN, untestable=tuple(f"2.{i}" for i in range(1, 6)))
    assert found.culprits[0].untestable == ("2.1", "2.2", "2.3", "2.4", "2.5")
    found, asked = search(at_least("torch", "2.4"), SEVEN, untestable=("2.6",))
    assert found.sentence == "the bad end torch 2.6 cannot be tested: no wheel"
    assert len(asked) == 3


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(list(Reading)), max_size=12))
def test_any_history_gives_a_real_change_between_neighbours(middle: list[Reading]) -> None:
    readings = [Reading.GOOD, *middle, Reading.BAD]
    axis = Axis("torch", tuple(str(i) for i in range(len(readings))))
    found = bisect([axis], lambda pins: Answer(readings[int(pins["torch"])]), Journal(None, "s"))
    (culprit,) = found.culprits
    low, high = int(culprit.last_good), int(culprit.first_bad)
    assert (readings[low], readings[high]) == (Reading.GOOD, Reading.BAD)
    assert readings[low + 1 : high] == [Reading.UNTESTABLE] * (high - low - 1)


def test_one_of_two_packages() -> None:
    found, _ = search(at_least("transformers", "5.2"), SEVEN, OTHER)
    assert found.sentence == "transformers 5.1 is good, 5.2 is bad (with torch 2.0)"


def test_two_packages_each_bad_alone() -> None:
    found, _ = search(
        lambda pins: at_least("torch", "2.4")(pins) or at_least("transformers", "5.2")(pins), SEVEN, OTHER
    )
    assert [culprit.first_bad for culprit in found.culprits] == ["2.4", "5.2"]
    assert found.kind == "found"


def test_two_packages_bad_only_together() -> None:
    found, _ = search(
        lambda pins: at_least("torch", "2.4")(pins) and at_least("transformers", "5.2")(pins), SEVEN, OTHER
    )
    assert (found.kind, found.sentence) == (
        "together",
        "only together: torch 2.3 is good, 2.4 is bad (with transformers 5.4) and transformers 5.1 is good, 5.2 is "
        "bad (with torch 2.4)",
    )


def test_an_interrupted_search_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "out" / "journal.jsonl"
    calls = 0

    def interrupted(pins: dict[str, str]) -> bool:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return at_least("torch", "2.4")(pins)

    with pytest.raises(KeyboardInterrupt):
        search(interrupted, SEVEN, journal=Journal(path, "case"))
    path.write_bytes(path.read_bytes() + b'{"key": "torn')
    found, asked = search(at_least("torch", "2.4"), SEVEN, journal=Journal(path, "case"))
    whole, from_the_start = search(at_least("torch", "2.4"), SEVEN)
    assert found == whole
    assert len(asked) == len(from_the_start) - 5
    again, asked = search(at_least("torch", "2.4"), SEVEN, journal=Journal(path, "case"))
    assert (again, asked) == (whole, [])


def test_journals_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path, "one case")
    with pytest.raises(UsageError, match="belongs to 'one case', not to 'another'; give another --out"):
        Journal(path, "another")
    path.write_text("[]\nno json\n")
    with pytest.raises(HarnessError, match="is no journal of a bisection"):
        Journal(path, "one case")


def test_what_cannot_be_asked() -> None:
    for axes in ((), (SEVEN, SEVEN), (SEVEN, OTHER, Axis("numpy", ("1", "2")))):
        with pytest.raises(UsageError, match="bisect one package, or two different ones"):
            search(lambda pins: True, *axes)
    with pytest.raises(UsageError, match="torch: give two different releases"):
        Axis("torch", ("2.0",))
