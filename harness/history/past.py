"""One case's past, and whether it is one of a flaky case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.history.views import GOOD, TELLING, RunView, Sample
from harness.records import Change, ChangeKind, Status

Direction = Literal["better", "worse", "neutral"]
EXCURSION = 2
"""A case that leaves its status for at most so many runs, and comes back while nothing recorded differs,
is flaky."""
FLAKE_MEMORY = 20
"""Results during which a flaky case is remembered as flaky."""
SETTLED = 0.01
"""A flaky case has regressed when its failures in a row would be rarer than this at its usual rate."""


@dataclass(frozen=True)
class Past:
    """One case's samples, oldest first, each with its run; the last one is tonight's."""

    runs: list[RunView]
    samples: list[Sample]

    def telling(self) -> list[int]:
        """Return positions before tonight whose status says something about the device."""
        return [i for i, one in enumerate(self.samples[:-1]) if one.status in TELLING]

    def change(self, last: int, kind: ChangeKind, direction: Direction, sentence: str) -> Change:
        """Return a change between the sample at ``last`` and tonight's."""
        return Change(
            case=self.samples[-1].case,
            kind=kind,
            direction=direction,
            run=self.runs[-1].run_id,
            since=self.runs[-1].run_id,
            before=self.runs[last].run_id,
            status_before=self.samples[last].status,
            status=self.samples[-1].status,
            sentence=sentence,
        )


def past(name: str, before: Sequence[RunView], current: RunView) -> Past:
    """Return a case's samples in the runs that have one; the last is ``current``'s."""
    runs = [run for run in (*before, current) if name in run.samples]
    return Past(runs, [run.samples[name] for run in runs])


def good(sample: Sample) -> bool:
    """Tell whether a case passes, expectedly or not, or fails as it is known to."""
    return sample.status in GOOD or sample.status is Status.XPASS


def flaky(past: Past) -> bool:
    """Tell whether the case left its status and came back, not long ago, for no recorded reason or often."""
    stretches = _stretches(past, _history(past))
    excursions = [
        same_ground(past, before[-1], stretch[0]) and same_ground(past, stretch[-1], after[0])
        for before, stretch, after in zip(stretches, stretches[1:], stretches[2:], strict=False)
        if len(stretch) <= EXCURSION
    ]
    return any(excursions) or len(excursions) > 2


def excursion(past: Past, last: int) -> bool:
    """Tell whether the failures that end tonight were few and came and went with nothing recorded."""
    stretches = _stretches(past, _history(past))
    return (
        len(stretches) > 1
        and len(stretches[-1]) <= EXCURSION
        and same_ground(past, stretches[-2][-1], stretches[-1][0])
        and same_ground(past, last, len(past.samples) - 1)
    )


def settled(past: Past) -> bool:
    """Tell whether tonight's failure is the one that makes a flaky case's failures too many in a row."""
    if not flaky(past):
        return False
    positions = [*_history(past), len(past.samples) - 1]
    stretches = _stretches(past, positions)
    earlier = [at for stretch in stretches[:-1] for at in stretch]
    bad = sum(not good(past.samples[at]) for at in earlier)
    rate = (bad + 1) / (len(earlier) + 2)
    count = len(stretches[-1])
    return rate**count < SETTLED <= rate ** (count - 1)


def _history(past: Past) -> list[int]:
    return past.telling()[-FLAKE_MEMORY:]


def _stretches(past: Past, positions: Sequence[int]) -> list[list[int]]:
    """Return positions grouped into stretches of good and of bad results."""
    stretches: list[list[int]] = []
    for at in positions:
        if stretches and good(past.samples[stretches[-1][-1]]) == good(past.samples[at]):
            stretches[-1].append(at)
        else:
            stretches.append([at])
    return stretches


def same_ground(past: Past, one: int, other: int) -> bool:
    """Tell whether two results came from equal environments, weights and inputs."""
    a, b = past.samples[one], past.samples[other]
    return (
        past.runs[one].environment == past.runs[other].environment
        and (a.inputs, a.limits) == (b.inputs, b.limits)
        and (a.checkpoint == b.checkpoint or not a.checkpoint or not b.checkpoint)
    )
