"""What the first page says before any script runs: verdict, counts, moves, environment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.records import Environment, Status
from harness.report.details import cleaned
from harness.report.digest import LETTERS, RunDigest
from harness.report.night import WORST_FIRST
from harness.report.numbers import duration
from harness.report.timeline import Moves, Timeline

STALE_HOURS = 36
SHOWN_MOVES = 50


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
    moves: Moves | None
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
            "data": {"cases_csv": "data/cases.csv", "cases_json": "data/cases.json"},
        }


def overview(timeline: Timeline, models: int, now: datetime) -> Overview:
    """The first page of these runs."""
    newest = timeline.digests[-1] if timeline.digests else None
    before = timeline.last_complete_before_newest()
    return Overview(
        newest=newest,
        generated=now,
        counts=_counts(timeline, before),
        moves=timeline.moves(before, len(timeline.digests) - 1) if before is not None else None,
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
    seen = one.environment
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
            "environment": seen.model_dump(mode="json"),
        }
    )
    return tree
