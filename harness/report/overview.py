"""What the first page says before any script runs: verdict, counts, moves, environment."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.records import Change, Environment, Status
from harness.report.details import cleaned
from harness.report.digest import LETTERS, RunDigest
from harness.report.night import WORST_FIRST
from harness.report.numbers import duration, json_number
from harness.report.timeline import Timeline

STALE_HOURS = 36
SHOWN_CHANGES = 40
"""Per direction on the first page; the matrix has them all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """A tile: how many cases have a status, and how that moved."""

    status: Status
    number: int
    came: int | None
    """Cases that have the status now and did not before. None: nothing to compare with."""
    left: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """The first page."""

    newest: RunDigest | None
    generated: datetime
    counts: tuple[Count, ...]
    changes: tuple[Change, ...]
    """What became of cases, in reading order."""
    since: str | None
    """Run id of the last complete run before the newest: what the tiles count against."""
    facts: tuple[tuple[str, str], ...]
    """Label and value of what ran."""
    models: int
    runs: int
    duration: str

    @property
    def level(self) -> str:
        """The level of the night; a site without a run is empty."""
        return self.newest.night.level if self.newest else "empty"

    @property
    def sentence(self) -> str:
        """The verdict of the night."""
        return self.newest.night.sentence if self.newest else "No run yet: this report proves nothing."

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the run is not complete."""
        return tuple(cleaned(self.newest.facts.problems)) if self.newest else ()

    def going(self, direction: str) -> list[Change]:
        """The changes of one direction: better and worse are never summed."""
        return [one for one in self.changes if one.direction == direction]

    @property
    def machine_readable(self) -> dict[str, Any]:
        """The first page for programs: ``site.json``."""
        return {
            "version": 1,
            "generated": self.generated.isoformat(),
            "run_id": self.newest.run_id if self.newest else None,
            "level": self.level,
            "sentence": self.sentence,
            "counts": {count.status.value: count.number for count in self.counts},
            "problems": list(self.problems),
            "changes": {way: len(self.going(way)) for way in ("worse", "better", "neutral")},
            "data": {
                "cases_csv": "data/cases.csv",
                "cases_json": "data/cases.json",
                "junit": "data/junit.xml",
                "summary": "data/summary.md",
                "feed": "feed.xml",
                "badge": "badges/night.json",
            },
        }


def overview(timeline: Timeline, changes: Sequence[Change], models: int, now: datetime) -> Overview:
    """The first page of these runs."""
    newest = timeline.digests[-1] if timeline.digests else None
    before = timeline.last_complete_before(len(timeline.digests) - 1)
    return Overview(
        newest=newest,
        generated=now,
        counts=_counts(timeline, before),
        changes=tuple(changes),
        since=timeline.digests[before].run_id if before is not None else None,
        facts=_environment_facts(newest.environment) if newest else (),
        models=models,
        runs=len(timeline.digests),
        duration=duration((newest.finished - newest.started).total_seconds()) if newest and newest.finished else "",
    )


def _counts(timeline: Timeline, before: int | None) -> tuple[Count, ...]:
    if not timeline.digests:
        return ()
    new = timeline.statuses(len(timeline.digests) - 1)
    old = timeline.statuses(before) if before is not None else None
    counts = timeline.digests[-1].night.counts
    return tuple(_count(status, LETTERS[status], counts.get(status, 0), old, new) for status in WORST_FIRST[::-1])


def _count(status: Status, letter: str, number: int, old: str | None, new: str) -> Count:
    if old is None:
        return Count(status=status, number=number, came=None, left=None)
    pairs = list(zip(old, new, strict=True))
    return Count(
        status=status,
        number=number,
        came=sum(1 for was, now in pairs if now == letter != was),
        left=sum(1 for was, now in pairs if was == letter != now),
    )


def _environment_facts(seen: Environment) -> tuple[tuple[str, str], ...]:
    device = " ".join(seen.device.get(key, "") for key in ("kind", "version")).strip()
    versions = {package.name: package.version for package in seen.packages}
    pairs = [
        ("Device", device or "unknown"),
        *((name, versions[name]) for name in ("torch", "torch_spyre", "transformers") if name in versions),
        ("Harness", f"{seen.harness_version} {(seen.commit or '')[:8]}".strip()),
        ("Machine", f"{seen.machine}, {seen.cpu}, {seen.cores} cores, {seen.memory / 1e9:.0f} GB"),
        ("Python", seen.python),
    ]
    return tuple((cleaned(label), cleaned(value)) for label, value in pairs)


def run_facts(one: RunDigest) -> dict[str, Any]:
    """One run in the list of runs that every page loads."""
    tree: dict[str, Any] = cleaned(
        {
            "id": one.run_id,
            "started": one.started.isoformat(),
            "finished": one.finished.isoformat() if one.finished else None,
            "profile": one.profile,
            "selection": one.selection,
            "level": one.night.level,
            "sentence": one.night.sentence,
            "complete": one.facts.complete,
            "counts": {status.value: number for status, number in one.night.counts.items()},
            "seconds": json_number(sum(value for value in one.seconds if value > 0), 4),
            "median_ratio": json_number(_median(one.ratios), 4),
            "mean_share": json_number(_mean(one.shares), 4),
            "cached": one.cached,
            "computed": one.computed,
        }
    )
    return tree


def site_facts(runs: Sequence[RunDigest], generated: datetime) -> dict[str, Any]:
    """What every page loads: the runs, and each distinct environment once."""
    environments: list[Any] = []
    listed = []
    for one in runs:
        seen = cleaned(one.environment.model_dump(mode="json"))
        if seen not in environments:
            environments.append(seen)
        listed.append({**run_facts(one), "environment": environments.index(seen)})
    return {"runs": listed, "environments": environments, "generated": generated.isoformat()}


def change_facts(changes: Sequence[Change], runs: Sequence[RunDigest]) -> list[Any]:
    """Changes for the pages: ``[case, kind, direction, run, since, metric, sentence]``, runs as places."""
    place = {one.run_id: at for at, one in enumerate(runs)}
    return [
        cleaned(
            [c.case, c.kind.value, c.direction, place[c.run], place.get(c.since, place[c.run]), c.metric, c.sentence]
        )
        for c in changes
        if c.run in place
    ]


def _defined(numbers: array[float]) -> list[float]:
    return sorted(value for value in numbers if 0 <= value < float("inf"))


def _median(numbers: array[float]) -> float | None:
    known = _defined(numbers)
    return known[len(known) // 2] if known else None


def _mean(numbers: array[float]) -> float | None:
    known = _defined(numbers)
    return sum(known) / len(known) if known else None
