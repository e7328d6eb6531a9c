"""Stored runs against one another: the commands ``diff``, ``baseline``, ``gate`` and ``report``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from harness import condensed, history, manifest, matrix, report, store
from harness.condensed import Condensed
from harness.damage import Warn
from harness.errors import UsageError
from harness.records import Change, Policy, Requirement, Status
from harness.report import ReportRun, SiteFacts

BASELINES = Path("reports") / "baselines"
REPRODUCERS = "reproducers"
"""Folder of a run directory with a reproducer per failed case, named by the case's slug."""
EVERYTHING = Policy(version=1, require=(Requirement(cases="*", status=(Status.PASS, Status.XFAIL, Status.SKIP)),))
"""The policy where no file gives one: each case passes, fails as it is known to, or is skipped with a reason."""
WAYS: tuple[tuple[Literal["worse", "better", "neutral"], str], ...] = (
    ("worse", "Worse"),
    ("better", "Better"),
    ("neutral", "Other"),
)


@dataclass(frozen=True)
class Difference:
    """Two runs, side by side."""

    before: history.RunView
    after: history.RunView
    changes: tuple[Change, ...]
    suspects: tuple[history.Suspect, ...]
    """What differs between the environments, likeliest first."""

    @property
    def counts(self) -> dict[str, int]:
        """Changes by direction; never summed."""
        return {way: sum(change.direction == way for change in self.changes) for way, _ in WAYS}

    def json(self) -> str:
        """The difference for programs."""
        tree: dict[str, Any] = {
            "before": self.before.run_id,
            "after": self.after.run_id,
            "counts": self.counts,
            "changes": [change.model_dump(mode="json") for change in self.changes],
            "suspects": [asdict(suspect) for suspect in self.suspects],
        }
        return json.dumps(tree, indent=1)

    def text(self) -> str:
        """The difference for people."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"before  {self.before.run_id}  {self.before.lane}"
        yield f"after   {self.after.run_id}  {self.after.lane}"
        yield ", ".join(f"{self.counts[way]} {name.lower()}" for way, name in WAYS)
        for way, name in WAYS:
            found = [change for change in self.changes if change.direction == way]
            if found:
                yield f"\n{name} ({len(found)})"
                yield from (f"  {change.kind:<17} {change.case}: {change.sentence}" for change in found)
        yield "\nWhat differs, likeliest first" if self.suspects else "\nNothing recorded differs between the two."
        yield from (f"  {suspect.weight:.2f}  {suspect}" for suspect in self.suspects)


def read(directory: Path, warn: Warn) -> store.StoredRun:
    """Return a run directory as it is stored; ``warn`` is told what in it is damaged."""
    stored = store.read_run(directory)
    warn(directory, stored.problems)
    return stored


def view(directory: Path, warn: Warn) -> history.RunView:
    """Return a run directory as history sees it; ``warn`` is told what in it is damaged."""
    stored = read(directory, warn)
    return history.view(stored.run, stored.results, stored.problems)


def diff(before: Path, after: Path, warn: Warn) -> Difference:
    """Return what differs between two run directories, whatever their dates, hosts and selections."""
    one, other = view(before, warn), view(after, warn)
    suspects = history.explain(one.environment, other.environment)
    return Difference(one, other, history.diff(one, other), suspects)


@dataclass(frozen=True)
class Update:
    """A baseline as it would be with a run accepted."""

    path: Path
    text: str
    patch: str
    """What ``git apply`` takes; empty when nothing differs."""

    def write(self) -> None:
        """Put the new baseline in place, as a whole."""
        store.write_atomically(self.path, self.text.encode())


def update(run: history.RunView, place: Path = BASELINES, accept: Literal["better", "worse"] | None = None) -> Update:
    """Return the baseline with a run accepted. ``place`` is its file, or the folder of all of them.

    Raises UsageError for a run that cannot become the baseline, and for one that is better and worse at once.
    """
    path = _file(run, place)
    old = history.baseline.read(path) if path.exists() else None
    new = history.baseline.update(old, run, accept)
    return Update(path, new.text(), history.baseline.patch(path.as_posix(), old, new))


def _file(run: history.RunView, place: Path) -> Path:
    if place.suffix == ".tsv":
        return place
    if place.is_file():
        raise UsageError(f"{place}: a baseline's name ends in .tsv; give such a file, or a folder of them")
    return place / history.baseline.file_name(run.profile, run.lane)


def gate(run: Path, against: Path, policy: Path | None, today: date, warn: Warn) -> history.GateResult:
    """Return whether a run may be released; without a policy file `EVERYTHING` holds."""
    rules = manifest.load_policy(policy) if policy else EVERYTHING
    seen = view(run, warn)
    return history.gate(seen, rules, today, history.baseline.read(_file(seen, against)))


def publish(directories: Iterable[Path], out: Path, warn: Warn | None = None) -> SiteFacts:
    """Render run directories as one site: the newest in full, each with what changed since those before it.

    Earlier runs are read once; what is kept beside them is read from then on. ``warn`` is told of each
    run what was damaged. One run's results are in memory at a time, beside the newest one's.
    """
    runs: dict[str, Condensed] = {}
    newest: store.StoredRun | None = None
    for directory in directories:
        found = condensed.kept(directory)
        one, stored = (found, None) if found else condensed.condense(directory)
        if one.run_id in runs:
            continue
        runs[one.run_id] = one
        if stored and one.run_id == max(runs):
            newest = stored
        if warn:
            warn(directory, one.digest.facts.damage)
    assert runs, "the command line asks for one directory at least"
    last = runs.pop(max(runs))
    if newest is None or newest.run.run_id != last.run_id:
        newest = store.read_run(last.directory)
    older = [one.digest for one in runs.values()]
    return report.render([*older, report_run(newest)], out, changes=all_changes([*runs.values(), last]))


def report_run(stored: store.StoredRun) -> ReportRun:
    """Return a stored run as the report takes it, with its logs and reproducers."""
    return ReportRun(
        run=stored.run,
        results=stored.results,
        directory=stored.directory,
        problems=stored.problems,
        reproducers=_reproducers(stored),
    )


def serve(directories: list[Path], out: Path, port: int, announce: Callable[[str], object]) -> None:
    """Serve the site of run directories on the loopback address until interrupted, made anew as they grow.

    Raises UsageError for a port that is taken.
    """
    seen = _state(directories)

    def refresh() -> None:
        nonlocal seen
        now = _state(directories)
        if now != seen:
            publish(directories, out)
            seen = now

    try:
        report.serve(out, port=port, refresh=refresh, announce=announce)
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror}; choose another, or 0 for a free one") from error


def _state(directories: list[Path]) -> list[tuple[int, int]]:
    """What tells that a run directory has grown: sizes and times of its files."""
    files = [directory / name for directory in directories for name in (store.RUN_FILE, store.CASES_FILE)]
    return [(status.st_size, status.st_mtime_ns) for status in (path.stat() for path in files if path.exists())]


def _reproducers(stored: store.StoredRun) -> dict[str, Path]:
    """Case id to the folder that reproduces it alone, where the run directory holds one."""
    places = {case.id: stored.directory / REPRODUCERS / matrix.slug(case.id) for case in stored.run.plan}
    return {case: place for case, place in places.items() if place.is_dir()}


def all_changes(runs: Sequence[Condensed]) -> list[Change]:
    """Return what changed in each run against those before it."""
    return [change for one in runs for change in one.changes(history.earlier(runs, one))]


def case_history(index: str, case: str) -> list[dict[str, Any]]:
    """Return what a case did in each run of an index, oldest first. Raises UsageError where it is not in one."""
    from harness.history.index import Index  # brings pyarrow

    rows = [
        {"run": run, "status": one.status.value, "error": one.error, "seconds": one.seconds, "sentence": one.sentence}
        for run, one in Index(index).case(case)
    ]
    if not rows:
        raise UsageError(f"{index} has no run of {case}; add some with `conformance history add RUN_DIR...`")
    return rows


def case_table(rows: list[dict[str, Any]]) -> str:
    """Return a case's history for people: a line for each run."""

    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    return "\n".join(
        f"{row['run']}  {row['status']:<6} {number(row['error'], '.2e'):>9} {number(row['seconds'], '.1f'):>7} s"
        f"  {row['sentence']}".rstrip()
        for row in rows
    )
