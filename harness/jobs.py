"""What the jobs of the nightly workflow do: plan, merge, reproduce, issues, publish. Nothing here needs GitHub."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from harness import environment, github, history, manifest, matrix, nightly, report, search, store
from harness.errors import HarnessError, StoredDataError, UsageError
from harness.records import Change, ChangeKind, ExpectationMode, Run, Status
from harness.report import RunDigest
from harness.store import StoredRun

ARCHIVE = "archive"
"""Folder of the pages branch that keeps what the site is made from; the rest of the branch is the site."""
KEPT = {".nojekyll", "CNAME", ARCHIVE}
"""Names on the pages branch that a new site does not replace."""
SITE_RUNS = 30
"""Runs that the site shows."""
REPORTED = (ChangeKind.REGRESSED, ChangeKind.DRIFTED, ChangeKind.GONE)
"""Changes for the worse that make a night red and get an issue. Flakes pass, and infra is not the device's."""
MONTH = timedelta(days=31)


@dataclass(frozen=True)
class Archive:
    """What the pages branch remembers: index, digests, changes, durations."""

    folder: Path

    def views(self, count: int = 60) -> list[history.RunView]:
        """Return the last runs, oldest first; none for a branch that is not there yet."""
        from harness.history.index import Index  # brings pyarrow

        return Index(str(self.folder / "index")).views(count) if (self.folder / "index").is_dir() else []

    def durations(self) -> dict[str, float]:
        """Return the seconds that each case took when it last ran."""
        path = self.folder / "durations.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def add(self, stored: StoredRun, changes: Sequence[Change]) -> None:
        """Keep a run. Adding it again changes nothing."""
        from harness.history.index import Index

        run = stored.run
        Index(str(self.folder / "index")).add(run, stored.results)
        self._write(f"digests/{run.run_id}.json", report.digest(nightly.report_run(stored)).dump())
        self._write(f"changes/{run.run_id}.json", json.dumps([change.model_dump(mode="json") for change in changes]))
        took = {result.case.id: (result.finished - result.started).total_seconds() for result in stored.results}
        durations = {**self.durations(), **{name: round(seconds, 1) for name, seconds in took.items()}}
        self._write("durations.json", json.dumps(durations, indent=0, sort_keys=True) + "\n")

    def prune(self, before: datetime) -> None:
        """Forget runs that began before a day; the index forgets whole months."""
        from harness.history.index import Index

        Index(str(self.folder / "index")).prune(before)
        for kind in ("digests", "changes"):
            for path in (self.folder / kind).glob("*.json"):
                with suppress(ValueError):
                    if datetime.strptime(path.name[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) < before:
                        path.unlink()

    def older(self, than: str, count: int) -> tuple[list[RunDigest], list[Change]]:
        """Return the last runs before one, by id, with what changed in each."""
        paths = sorted(path for path in (self.folder / "digests").glob("*.json") if path.stem < than)[-count:]
        digests = [found for path in paths if (found := RunDigest.parse(path.read_text())) is not None]
        changes: list[Change] = []
        for one in digests:
            path = self.folder / "changes" / f"{one.run_id}.json"
            if path.exists():
                changes += [Change.model_validate(tree) for tree in json.loads(path.read_text())]
        return digests, changes

    def newest(self) -> str:
        """Return the id of the newest run; empty without one."""
        return max((path.stem for path in (self.folder / "digests").glob("*.json")), default="")

    def _write(self, name: str, text: str) -> None:
        store.write_atomically(self.folder / name, text.encode())


def plan(manifest_path: Path, profile: str | None, shards: int) -> dict[str, str]:
    """Return the outputs of the plan job: ``empty``, ``cases`` and ``matrix``, as GitHub reads them."""
    jobs = matrix.github(matrix.plan(manifest.load(manifest_path), profile=profile), shards)
    return {name: json.dumps(value, separators=(",", ":")) for name, value in jobs.items()}


def find_shards(folder: Path, *, missing_ok: bool = False) -> list[Path]:
    """Return the run directories below a folder. Raises UsageError where there is none, unless ``missing_ok``."""
    found = sorted(path.parent for path in folder.glob(f"**/{store.RUN_FILE}"))
    if not found and not missing_ok:
        what = "holds no run directory" if folder.is_dir() else "is a file" if folder.exists() else "no such folder"
        raise UsageError(f"{folder}: {what}; name the folder that holds the shards' run directories")
    return found


def merge(shards: Sequence[Path], out: Path, manifest_path: Path, profile: str | None) -> StoredRun:
    """Return shards as one run of the whole profile, logs and tensors included.

    The plan is made anew from the manifest, so what no shard planned, or what a lost shard took with it, is
    missing in the run, which is then unfinished. Raises what `store.merge` raises.
    """
    runs = [store.read_run(directory) for directory in shards]
    planned = _planned(runs, manifest_path, profile)
    for stored in runs:
        if stored.run.manifest_digest != planned.manifest_digest:
            raise StoredDataError(
                f"{stored.directory}: ran another manifest than {manifest_path} "
                f"({stored.run.manifest_digest[:12]}, {planned.manifest_digest[:12]}); name its own with --manifest"
            )
    with tempfile.TemporaryDirectory(prefix="plan-") as name:
        store.RunWriter(Path(name), planned).finish(planned.started, 0)
        return store.merge([Path(name), *shards], out)


def _planned(runs: Sequence[StoredRun], manifest_path: Path, profile: str | None) -> Run:
    """Return the run that the shards are parts of, as it would be without results."""
    cases = matrix.plan(manifest.load(manifest_path), profile=profile)
    first = min((stored.run for stored in runs), key=lambda run: run.run_id, default=None)
    now = datetime.now(UTC)
    return Run(
        run_id=first.run_id if first else store.new_run_id(now),
        started=first.started if first else now,
        profile=profile,
        expectations=first.expectations if first else ExpectationMode.GATING,
        manifest_digest=hashlib.sha256(manifest_path.read_bytes()).hexdigest(),
        environment=first.environment if first else environment.capture(1, 1),
        plan=cases,
    )


@dataclass(frozen=True)
class Tonight:
    """A merged run, judged against the nights before it."""

    stored: StoredRun
    view: history.RunView
    past: tuple[history.RunView, ...]
    changes: tuple[Change, ...]

    @property
    def exit_status(self) -> int:
        """3 without a case, 1 when incomplete, damaged or worse than before in anything; else the run's own."""
        stored = self.stored
        if not stored.run.plan:
            return 3
        red = stored.missing or stored.problems or stored.run.exit_status is None
        return max(1 if red or self._reported() else 0, stored.run.exit_status or 0)

    def _reported(self) -> list[Change]:
        return [one for one in self.changes if one.direction == "worse" and one.kind in REPORTED]

    def text(self) -> str:
        """Return the summary: the verdict with the worst cases first, then what changed."""
        stored = self.stored
        summary = report.markdown_summary(stored.run, stored.results)
        problems = "".join(f"- {problem}\n" for problem in stored.problems)
        missing = "".join(f"- `{name}` was planned and has no result\n" for name in stored.missing[:100])
        told = f"\n## Incomplete\n\n{problems}{missing}" if problems or missing else ""
        return f"{summary}{told}\n{history.tell(self.changes, [*self.past, self.view])}"

    def issues(self) -> github.Night:
        """Return what the issues of this lane are held against."""
        causes = [
            github.Cause(
                key=cause.key,
                kind=cause.changes[0].kind.value,
                title=f"{cause.name} on {self.view.lane}",
                cases={change.case: change.sentence for change in cause.changes},
                suspects=tuple(str(suspect) for suspect in cause.suspects[:5]),
            )
            for cause in history.causes(self._reported(), [*self.past, self.view])
        ]
        well = {kind: frozenset(names) for kind, names in self._well().items()}
        return github.Night(self.view.lane, self.view.run_id, tuple(causes), well)

    def _well(self) -> dict[str, set[str]]:
        """Return, by kind of change, the cases of which nothing of that kind is left."""
        samples = self.view.samples
        dropped = set() if self.view.partial else self._known() - self.view.planned
        good = {name for name, one in samples.items() if one.status in (Status.PASS, Status.XFAIL, Status.XPASS)}
        drifted = [change for change in self.changes if change.kind is ChangeKind.DRIFTED]
        recovered = {change.case for change in drifted if change.direction == "better"}
        return {
            ChangeKind.REGRESSED.value: good | dropped,
            ChangeKind.DRIFTED.value: recovered | dropped,
            ChangeKind.GONE.value: {name for name, one in samples.items() if one.status is not Status.SKIP},
        }

    def _known(self) -> set[str]:
        """Return the cases of earlier whole runs of this profile; another profile's are not dropped by this one."""
        same = [run for run in self.past if run.profile == self.view.profile and not run.partial]
        return {name for run in same for name in run.samples}


def tonight(directory: Path, archive: Archive) -> Tonight:
    """Return a run held against the archive's nights."""
    stored = store.read_run(directory)
    seen = history.view(stored.run, stored.results, stored.problems)
    past = tuple(run for run in archive.views() if run.run_id != seen.run_id)
    return Tonight(stored, seen, past, history.changes(past, seen))


def baseline_patches(view: history.RunView, place: Path) -> Iterator[tuple[str, str]]:
    """Yield file names and patches that accept the run: one, or one each for better and worse.

    A run that cannot become the baseline gives a text with the reason.
    """
    try:
        yield "baseline.patch", nightly.update(view, place).patch
        return
    except UsageError as error:
        reason = str(error)
    ways: tuple[Literal["better", "worse"], ...] = ("better", "worse")
    try:
        for way in ways:
            yield f"baseline-{way}.patch", nightly.update(view, place, way).patch
    except UsageError:
        yield "no-baseline.txt", reason + "\n"


def reproduce(night: github.Night, request: search.Request, out: Path, count: int) -> Iterator[str]:
    """Make a reproducer for the first case of each of the first regressions; yields a line for each."""
    regressed = [cause for cause in night.causes if cause.kind == ChangeKind.REGRESSED]
    for cause in regressed[:count]:
        case = next(iter(cause.cases))
        folder = out / matrix.slug(case)
        try:
            done = search.localize(case, request, folder)
            said = done.reproducer or search.render(done.localization)
        except HarnessError as error:
            said = str(error)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "localization.txt").write_text(said + "\n", encoding="utf-8")
        yield f"{case}: {said.splitlines()[0]}"


def issues(night: github.Night, client: github.Client) -> Iterator[str]:
    """Bring GitHub's issues up to tonight; yields a line for each thing done."""
    return github.carry_out(github.plan(client.issues(), night), client)


def add_night(tree: Path, directory: Path, keep: timedelta) -> None:
    """Add a run to the state of the pages branch in ``tree``, and render its site anew.

    A run that is older than the newest one there joins the history; the site shows it from the next run on. So does
    one of a smaller profile, smoke by hand for instance, lest it stand for the cases of which it says nothing.
    """
    archive = Archive(tree / ARCHIVE)
    found = tonight(directory, archive)
    newest = archive.newest()
    archive.add(found.stored, found.changes)
    archive.prune(datetime.now(UTC) - max(keep, MONTH))
    if found.view.run_id < newest:
        return
    digests, changes = archive.older(found.view.run_id, SITE_RUNS - 1)
    if any(one.profile != found.view.profile and found.view.planned < set(one.ids) for one in digests):
        return
    with tempfile.TemporaryDirectory(prefix="site-") as name:
        site = Path(name) / "site"
        report.render([*digests, nightly.report_run(found.stored)], site, changes=[*changes, *found.changes])
        for old in tree.iterdir():
            if old.name not in KEPT:
                shutil.rmtree(old) if old.is_dir() else old.unlink()
        shutil.copytree(site, tree, dirs_exist_ok=True)
    (tree / ".nojekyll").touch()  # names that begin with an underscore are served too
