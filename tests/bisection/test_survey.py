"""Releases beside the answer: a history that is out of order is said to be."""

from __future__ import annotations

import pytest

from harness.bisection import Answer, Axis, Journal, Reading, bisect, survey

AXIS = Axis("torch", tuple(f"2.{i}" for i in range(9)))


def walk(bad: set[int], count: int) -> tuple[str, str, int]:
    asked = []

    def probe(pins: dict[str, str]) -> Answer:
        asked.append(pins)
        return Answer(Reading.BAD if int(pins["torch"][2:]) in bad else Reading.GOOD)

    journal = Journal(None, "s")
    found = bisect([AXIS], probe, journal)
    searched = len(asked)
    seen = survey(AXIS, found.culprits[0], probe, journal, count)
    readings = "".join("-" if reading is None else reading[0] for _, reading in seen.readings)
    return readings, seen.sentence, len(asked) - searched


@pytest.mark.parametrize(
    ("bad", "count", "expected"),
    [
        ({5, 6, 7, 8}, 0, ("g---gbb-b", "torch: 5 of 9 releases asked, all in order", 0)),
        ({5, 6, 7, 8}, 1, ("g-g-gbbbb", "torch: 7 of 9 releases asked, all in order", 2)),
        ({5, 6, 7, 8}, 9, ("gggggbbbb", "torch: 9 of 9 releases asked, all in order", 4)),
        (
            {2, 5, 6, 8},
            1,
            (
                "g-b-gbbgb",
                "torch: not monotonic: 2.2 is bad, 2.7 is good; the change found is one of several",
                2,
            ),
        ),
    ],
)
def test_what_halving_never_asked(bad: set[int], count: int, expected: tuple[str, str, int]) -> None:
    assert walk(bad, count) == expected
