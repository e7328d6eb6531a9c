"""Does the history stay as the search found it? Releases that halving never asked, on both sides of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.bisection.journal import Journal
from harness.bisection.search import Axis, Culprit, Probe, Reading, key


@dataclass(frozen=True)
class Survey:
    """What was asked of one package's releases, the search included."""

    package: str
    readings: tuple[tuple[str, Reading | None], ...]
    """Release and what it did, from the good end to the bad end; None: not asked."""
    against: tuple[str, ...]
    """Releases that break the order: bad before the last good one, or good after the first bad one."""

    @property
    def sentence(self) -> str:
        """One sentence for people."""
        asked = sum(reading is not None for _, reading in self.readings)
        if self.against:
            told = ", ".join(f"{name} is {dict(self.readings)[name]}" for name in self.against)
            return f"{self.package}: not monotonic: {told}; the change found is one of several"
        return f"{self.package}: {asked} of {len(self.readings)} releases asked, all in order"


def survey(axis: Axis, culprit: Culprit, probe: Probe, journal: Journal, count: int) -> Survey:
    """Return what up to ``count`` more releases on each side of the culprit do, spread evenly."""
    low, high = axis.versions.index(culprit.last_good), axis.versions.index(culprit.first_bad)
    keys = {name: key({**dict(culprit.beside), axis.package: name}) for name in axis.versions}
    for side in (axis.versions[:low], axis.versions[high + 1 :]):
        for name in _spread([name for name in side if keys[name] not in journal.answers], count):
            answer = probe({**dict(culprit.beside), axis.package: name})
            journal.add(keys[name], answer.reading, answer.detail)
    readings = tuple((name, _last(journal, keys[name])) for name in axis.versions)
    against = [name for name, reading in readings[:low] if reading is Reading.BAD]
    against += [name for name, reading in readings[high + 1 :] if reading is Reading.GOOD]
    return Survey(axis.package, readings, tuple(against))


def _last(journal: Journal, name: str) -> Reading | None:
    answers = journal.answers.get(name)
    return Reading(answers[-1][0]) if answers else None


def _spread(names: Sequence[str], count: int) -> list[str]:
    """Return up to ``count`` of the names, evenly apart and off the ends."""
    if count >= len(names):
        return list(names)
    return [names[(2 * i + 1) * len(names) // (2 * count)] for i in range(count)]
