"""Runs -> a folder of static pages that works from file://, under any path, without a network."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from harness.errors import UsageError
from harness.records import Change
from harness.report import changes as changed
from harness.report.chunks import Tree
from harness.report.compat import night_badge
from harness.report.digest import RunDigest, digest
from harness.report.feed import atom
from harness.report.inputs import ReportRun, SiteFacts
from harness.report.matrix import gone, run_columns
from harness.report.newest import Newest
from harness.report.numbers import dumps
from harness.report.overview import Overview, change_facts, overview, site_facts
from harness.report.pages import write_pages
from harness.report.timeline import Timeline

MARKER = "site.json"
"""A folder with this file is a report and may be replaced by a newer one."""


def render(
    runs: Sequence[ReportRun | RunDigest],
    out: Path,
    *,
    changes: Sequence[Change] | None = None,
    now: datetime | None = None,
) -> SiteFacts:
    """Write the site of these runs to `out`, replacing an older report there as a whole.

    The newest run, by run id, is shown in full and has to be a `ReportRun`; the others are history and
    may be digests. `changes` are the history's labels; without them statuses alone are compared. Without
    a run the site says that there is none. Raises UsageError when `out` holds anything but a report.
    """
    refuse_foreign(out)
    ordered = sorted(runs, key=lambda one: one.run_id)
    out.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        staging.chmod(0o755)
        facts = _write(ordered, changes, Tree(staging), out, now or datetime.now(UTC))
        _swap(staging, out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return facts


def refuse_foreign(out: Path) -> None:
    """Raise UsageError for a place that no report may replace."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; choose a folder for the report")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise UsageError(f"{out}: is not empty and holds no report; choose another folder for it")


def _swap(staging: Path, out: Path) -> None:
    """Put the new site in place; a reader sees the old one or the new one, hardly ever neither."""
    retired = staging.with_name(f"{staging.name}.old")
    if out.exists():
        out.rename(retired)
    staging.rename(out)
    shutil.rmtree(retired, ignore_errors=True)


def _write(
    runs: Sequence[ReportRun | RunDigest], changes: Sequence[Change] | None, tree: Tree, out: Path, now: datetime
) -> SiteFacts:
    newest = _newest(runs, tree)
    digests = [one if isinstance(one, RunDigest) else digest(one) for one in runs[:-1]]
    digests += [newest.digest] if newest else []
    timeline = Timeline(digests, newest.ids if newest else [])
    known = list(changes) if changes is not None else _all_derived(timeline)
    shown = changed.of_run(digests[-1].run_id, known) if digests else []
    if newest:
        newest.write(timeline, changed.labels(shown))
    page = overview(timeline, shown, len(newest.rows) if newest else 0, now)
    _write_history(tree, timeline, known, page)
    _copy_assets(tree)
    write_pages(tree, page, newest)
    return SiteFacts(
        index=out / "index.html",
        run_id=digests[-1].run_id if digests else None,
        level=page.level,
        sentence=page.sentence,
        models=page.models,
        cases=len(newest.ids) if newest else 0,
        runs=len(digests),
        files=tree.files,
        bytes=tree.size,
    )


def _newest(runs: Sequence[ReportRun | RunDigest], tree: Tree) -> Newest | None:
    if not runs:
        return None
    if isinstance(runs[-1], RunDigest):
        raise UsageError(f"{runs[-1].run_id}: the newest run is given as a digest; its run directory is needed")
    return Newest(runs[-1], tree)


def _all_derived(timeline: Timeline) -> list[Change]:
    return [one for run in range(len(timeline.digests)) for one in changed.derived(timeline, run)]


def _write_history(tree: Tree, timeline: Timeline, known: Sequence[Change], page: Overview) -> None:
    """Write what every page loads, columns per run, the feed, and the index for programs."""
    digests = timeline.digests
    tree.data("site", site_facts(digests, page.generated))
    tree.data("stamp", page.generated.isoformat())
    tree.data("changes", change_facts(known, digests))
    tree.data("gone", gone(timeline))
    for place in range(len(digests)):
        tree.data(f"run-{place}", run_columns(timeline, place))
    times = {one.run_id: one.finished or one.started for one in digests}
    tree.write("feed.xml", atom(known, times, page.generated))
    tree.write("badges/night.json", dumps(night_badge(page.level, page.sentence)) + "\n")
    tree.write(MARKER, dumps(page.machine_readable, indent=1) + "\n")


def _copy_assets(tree: Tree) -> None:
    """Copy style sheets, scripts, fonts and their licences from the package."""
    root = resources.files("harness.report") / "assets"
    with resources.as_file(root) as folder:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                tree.write(f"assets/{path.relative_to(folder).as_posix()}", path.read_bytes())
