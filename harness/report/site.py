"""Runs -> a folder of static pages that works from file://, under any path, without a network."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.records import Case, CaseResult
from harness.report.chunks import Tree, packed
from harness.report.details import case_text, joined, planned_text
from harness.report.digest import RunDigest, digest
from harness.report.inputs import ReportRun, SiteFacts
from harness.report.logs import LogShelf
from harness.report.matrix import CaseFacts, ModelEntry, entries, matrix
from harness.report.numbers import dumps, json_number
from harness.report.overview import overview, run_facts
from harness.report.pages import write_pages
from harness.report.rows import CaseRow, missing_row, result_row
from harness.report.tables import csv_table, json_table
from harness.report.text import shown
from harness.report.timeline import Timeline

MARKER = "site.json"
"""A folder with this file is a report and may be replaced by a newer one."""


def render(runs: Sequence[ReportRun], out: Path, *, now: datetime | None = None) -> SiteFacts:
    """Write the site of these runs to `out`, replacing an older report there as a whole.

    The newest run, by run id, is shown in full; the others as history. Without a run the site says that
    there is none. Raises UsageError when `out` holds anything but a report.
    """
    _refuse_foreign(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        staging.chmod(0o755)
        tree = Tree(staging)
        facts = _write(sorted(runs, key=lambda one: one.run.run_id), tree, out, now or datetime.now(UTC))
        _swap(staging, out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return facts


def _refuse_foreign(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise UsageError(f"{out}: is not empty and holds no report; choose another folder with --out")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; choose a folder with --out")


def _swap(staging: Path, out: Path) -> None:
    """Put the new site in place; a reader sees the old one or the new one, hardly ever neither."""
    retired = staging.with_name(f"{staging.name}.old")
    if out.exists():
        out.rename(retired)
    staging.rename(out)
    shutil.rmtree(retired, ignore_errors=True)


def _write(runs: Sequence[ReportRun], tree: Tree, out: Path, now: datetime) -> SiteFacts:
    newest = _Newest(runs[-1], tree) if runs else None
    digests = [digest(run) for run in runs[:-1]]
    if newest:
        digests.append(newest.read())
    rows = newest.rows if newest else []
    timeline = Timeline(digests, [case.id for row in rows for case in row.cases])
    if newest:
        newest.write(timeline)
    page = overview(timeline, len(rows), now)
    tree.data("site", {"runs": [run_facts(one) for one in digests], "generated": now.isoformat()})
    tree.write(MARKER, dumps(page.machine_readable, indent=1) + "\n")
    _copy_assets(tree)
    write_pages(tree, page)
    return SiteFacts(
        index=out / "index.html",
        run_id=digests[-1].run_id if digests else None,
        level=page.level,
        sentence=page.sentence,
        models=len(rows),
        cases=sum(len(row.cases) for row in rows),
        runs=len(digests),
        files=tree.files,
        bytes=tree.size,
    )


class _Newest:
    """The newest run while it is read: details as JSON text per case, the rows of the tables."""

    def __init__(self, source: ReportRun, tree: Tree) -> None:
        self._source = source
        self._tree = tree
        self._shelf = LogShelf(source.directory, tree)
        self._details: dict[str, str] = {}
        self._rows: dict[str, CaseRow] = {}
        self._facts: dict[str, CaseFacts] = {}
        self._cases: dict[str, Case] = {case.id: case for case in source.run.plan}
        self.rows: list[ModelEntry] = []

    def read(self) -> RunDigest:
        """Read the run once, keeping what its pages show."""
        self.digest = digest(self._source, self._visit)
        for case_id in self.digest.facts.missing:
            self._details[case_id] = planned_text(self._cases[case_id])
            self._rows[case_id] = missing_row(self._source.run.run_id, self._cases[case_id])
        self.rows = entries(self._cases.values())
        return self.digest

    def _visit(self, result: CaseResult) -> None:
        case_id = result.case.id
        log = self._shelf.place(result)
        self._details[case_id] = case_text(result, log=log) if log else case_text(result)
        self._rows[case_id] = result_row(self._source.run.run_id, result)
        self._facts[case_id] = CaseFacts.of(result)
        self._cases[case_id] = result.case

    def write(self, timeline: Timeline) -> None:
        """Write the matrix, the detail chunks and the downloads."""
        texts = [self._model_text(row, timeline) for row in self.rows]
        starts = packed(len(text) for text in texts)
        for number, start in enumerate(starts):
            end = starts[number + 1] if number + 1 < len(starts) else len(texts)
            self._tree.text_chunk(f"detail-{number}", f"[{','.join(texts[start:end])}]")
        self._tree.data("matrix", matrix(self.rows, self.digest, timeline, self._facts, starts))
        ordered = [self._rows[case.id] for row in self.rows for case in row.cases]
        self._tree.write("data/cases.csv", csv_table(ordered))
        self._tree.write("data/cases.json", json_table(ordered))

    def _model_text(self, row: ModelEntry, timeline: Timeline) -> str:
        cases = ",".join(self._case_text(case, timeline) for case in row.cases)
        head = dumps({"model": shown(row.model, 300), "task": row.task})
        return f'{head[:-1]},"cases":[{cases}]}}'

    def _case_text(self, case: Case, timeline: Timeline) -> str:
        ratios, shares, seconds = timeline.case_numbers(case.id)
        history = {"ratio": _history(ratios), "share": _history(shares), "seconds": _history(seconds)}
        return joined(self._details[case.id], {"history": history})


def _history(numbers: Sequence[float]) -> list[Any]:
    return [None if value < 0 else json_number(value, 4) for value in numbers]


def _copy_assets(tree: Tree) -> None:
    """Copy style sheets, scripts, fonts and their licences from the package."""
    root = resources.files("harness.report") / "assets"
    with resources.as_file(root) as folder:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                tree.write(f"assets/{path.relative_to(folder).as_posix()}", path.read_bytes())
