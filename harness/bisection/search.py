"""Which release changed a result: both ends proven first, then halved; one package, or two together.

Pure: what a combination of releases does is asked through a `Probe`, and every answer goes to a `Journal`, so
an interrupted search goes on where it stopped and asks nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from harness.bisection.journal import Journal
from harness.errors import UsageError

PROOFS = 2
"""Times that an end, and each neighbour of the answer, is asked: a result that does not repeat is no answer."""


class Reading(StrEnum):
    """What a case did with one combination of releases."""

    GOOD = "good"
    BAD = "bad"
    UNTESTABLE = "untestable"
    """The releases cannot be installed together, or the case gives no result with them."""


@dataclass(frozen=True)
class Answer:
    """One reading, and what is behind it in a sentence."""

    reading: Reading
    detail: str = ""


Combination = Mapping[str, str]
"""Package -> version."""
Probe = Callable[[Combination], Answer]


@dataclass(frozen=True)
class Axis:
    """One package's releases, from the good end to the bad end, both included."""

    package: str
    versions: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.versions) < 2 or len(set(self.versions)) != len(self.versions):
            raise UsageError(f"{self.package}: give two different releases, --good and --bad")


@dataclass(frozen=True)
class Culprit:
    """The release of one package that changed the result."""

    package: str
    last_good: str
    first_bad: str
    untestable: tuple[str, ...]
    """Releases between the two that could not be tested: any of them may be the first bad one."""
    beside: tuple[tuple[str, str], ...]
    """Releases of the other packages with which this was found."""

    def __str__(self) -> str:
        between = f"; {', '.join(self.untestable)} between them cannot be tested" if self.untestable else ""
        beside = "".join(f", {name} {version}" for name, version in self.beside)
        with_ = f" (with {beside[2:]})" if beside else ""
        return f"{self.package} {self.last_good} is good, {self.first_bad} is bad{with_}{between}"


@dataclass(frozen=True)
class Finding:
    """The end of a search."""

    kind: Literal["found", "together", "not_reproduced", "flaky", "untestable"]
    """``found``: each culprit changes the result alone; ``together``: only all of them do."""
    culprits: tuple[Culprit, ...]
    sentence: str
    asked: int
    """Combinations that were asked, journal included."""


class _Stop(Exception):  # noqa: N818
    """The search cannot go on; carries the finding's kind and sentence."""

    def __init__(self, kind: Literal["not_reproduced", "flaky", "untestable"], sentence: str) -> None:
        super().__init__(sentence)
        self.kind: Literal["not_reproduced", "flaky", "untestable"] = kind


def bisect(axes: Sequence[Axis], probe: Probe, journal: Journal) -> Finding:
    """Return which release changed the result. Raises UsageError for no axis or more than two.

    The history between the ends need not be monotonic: what is found is one change from good to bad between
    neighbouring testable releases, both asked twice.
    """
    if not 1 <= len(axes) <= 2 or len({axis.package for axis in axes}) != len(axes):
        raise UsageError("bisect one package, or two different ones at once")
    search = _Search(probe, journal)
    try:
        kind, culprits = search.run(axes)
    except _Stop as stop:
        return Finding(stop.kind, (), str(stop), len(journal.answers))
    joined = " and ".join(str(culprit) for culprit in culprits)
    sentence = joined if kind == "found" else f"only together: {joined}"
    return Finding(kind, culprits, sentence, len(journal.answers))


class _Search:
    def __init__(self, probe: Probe, journal: Journal) -> None:
        self.probe, self.journal = probe, journal

    def run(self, axes: Sequence[Axis]) -> tuple[Literal["found", "together"], tuple[Culprit, ...]]:
        good = {axis.package: axis.versions[0] for axis in axes}
        bad = {axis.package: axis.versions[-1] for axis in axes}
        self._prove(good, Reading.GOOD, "good")
        self._prove(bad, Reading.BAD, "bad")
        if len(axes) == 1:
            return "found", (self._halve(axes[0], {}),)
        alone = [axis for axis in axes if self._ask(good | _end(axis)) is Reading.BAD]
        if alone:
            return "found", tuple(self._halve(axis, _without(good, axis)) for axis in alone)
        # Neither is bad alone, so with one at its bad end the other one leads from good to bad.
        first = self._halve(axes[0], _without(bad, axes[0]))
        second = self._halve(axes[1], {first.package: first.first_bad})
        return "together", (first, second)

    def _prove(self, end: Combination, wanted: Reading, name: str) -> None:
        reading = self._ask(end, PROOFS)
        if reading is Reading.UNTESTABLE:
            why = self.journal.answers[key(end)][-1][1]
            raise _Stop("untestable", f"the {name} end {_told(end)} cannot be tested: {why}")
        if reading is not wanted:
            raise _Stop("not_reproduced", f"the {name} end {_told(end)} is {reading}: there is nothing to bisect")

    def _halve(self, axis: Axis, beside: Combination) -> Culprit:
        low, high = 0, len(axis.versions) - 1
        untestable: set[int] = set()
        while True:
            between = [at for at in range(low + 1, high) if at not in untestable]
            if not between:
                break
            middle = min(between, key=lambda at: abs(2 * at - low - high))
            reading = self._ask({**beside, axis.package: axis.versions[middle]})
            if reading is Reading.UNTESTABLE:
                untestable.add(middle)
            elif reading is Reading.GOOD:
                low = middle
            else:
                high = middle
        for at, wanted in ((low, Reading.GOOD), (high, Reading.BAD)):
            end = {**beside, axis.package: axis.versions[at]}
            reading = self._ask(end, PROOFS)
            if reading is not wanted:
                raise _Stop("flaky", f"{_told(end)} was expected to be {wanted} and is {reading}")
        skipped = tuple(axis.versions[at] for at in range(low + 1, high))
        versions = (axis.versions[low], axis.versions[high], skipped)
        return Culprit(axis.package, *versions, tuple(sorted(beside.items())))

    def _ask(self, combination: Combination, times: int = 1) -> Reading:
        """Return a combination's reading. Raises _Stop when it does not repeat."""
        name = key(combination)
        while len(self.journal.answers.get(name, ())) < times:
            answer = self.probe(dict(combination))
            self.journal.add(name, answer.reading, answer.detail)
            if answer.reading is Reading.UNTESTABLE:
                break
        readings = {reading for reading, _ in self.journal.answers[name]}
        if len(readings) > 1:
            told = " and ".join(sorted(readings))
            raise _Stop("flaky", f"{_told(combination)} is {told} in turn: the case is flaky, so not bisected")
        return Reading(readings.pop())


def _end(axis: Axis) -> dict[str, str]:
    return {axis.package: axis.versions[-1]}


def _without(combination: Combination, axis: Axis) -> dict[str, str]:
    return {name: version for name, version in combination.items() if name != axis.package}


def key(combination: Combination) -> str:
    """Return a combination's name in the journal."""
    return " ".join(f"{name}=={version}" for name, version in sorted(combination.items()))


def _told(combination: Combination) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(combination.items()))
