"""The verdict of the night: one sentence and a level, from counts and completeness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.records import ExpectationMode, Run, Status
from harness.report.completeness import Completeness

Level = Literal["good", "attention", "bad", "incomplete", "empty"]

WORST_FIRST: tuple[Status, ...] = (
    Status.ERROR,
    Status.FAIL,
    Status.XPASS,
    Status.NOTRUN,
    Status.XFAIL,
    Status.SKIP,
    Status.PASS,
)
UNEXPECTED: tuple[Status, ...] = WORST_FIRST[:4]
"""Statuses that someone has to look at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Night:
    """Counts over the union of planned and observed cases, and what to think of them."""

    counts: Mapping[Status, int]
    level: Level
    sentence: str

    @property
    def total(self) -> int:
        """All cases, planned or observed."""
        return sum(self.counts.values())


def night(run: Run, counts: Mapping[Status, int], facts: Completeness) -> Night:
    """The judgement of a run as a whole. `counts` holds missing cases as NOTRUN."""
    counted = Counter(counts)
    level, sentence = _judge(run, counted, facts)
    if run.expectations is ExpectationMode.VALIDATE:
        sentence = f"Expectations were set aside. {sentence}"
    return Night(counts=dict(counted), level=level, sentence=sentence)


def _judge(run: Run, counts: Counter[Status], facts: Completeness) -> tuple[Level, str]:
    total = sum(counts.values())
    unexpected = _listed(counts, UNEXPECTED)
    if facts.empty:
        return "empty", "Nothing was planned and nothing ran: this report proves nothing."
    if not facts.complete:
        found = unexpected or "nothing unexpected among those that ended"
        return "incomplete", f"Incomplete: {facts.observed} of {facts.planned} planned cases ended; {found}."
    validated = run.expectations is ExpectationMode.VALIDATE and counts[Status.PASS] + counts[Status.FAIL]
    if validated and not counts[Status.ERROR] + counts[Status.NOTRUN]:
        return ("attention" if counts[Status.FAIL] else "good"), f"{_listed(counts, WORST_FIRST[::-1])}."
    if unexpected and not any(counts[status] for status in UNEXPECTED[:3]) and run.exit_status == 0:
        return "attention", f"{unexpected} of {_cases(total)}, which the profile allows; the others are as expected."
    if unexpected:
        number = sum(counts[status] for status in UNEXPECTED)
        level: Level = "bad" if counts[Status.ERROR] + counts[Status.FAIL] + counts[Status.XPASS] else "attention"
        return level, f"{number} of {_cases(total)} {'needs' if number == 1 else 'need'} attention: {unexpected}."
    if not counts[Status.PASS] + counts[Status.XFAIL]:
        return "attention", f"Nothing was verified: all {_cases(total)} were skipped."
    if run.exit_status:
        return "attention", (
            f"All {_cases(total)} are as expected, yet the run ended with exit status {run.exit_status}."
        )
    whole = "The only case" if total == 1 else f"All {_cases(total)}"
    return "good", f"{whole} behaved as expected: {_listed(counts, WORST_FIRST[::-1])}."


def _listed(counts: Counter[Status], statuses: tuple[Status, ...]) -> str:
    return ", ".join(f"{counts[status]:,} {status}" for status in statuses if counts[status])


def _cases(number: int) -> str:
    return f"{number:,} case" if number == 1 else f"{number:,} cases"
