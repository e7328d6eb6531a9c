"""A run as a Markdown summary for a CI page: worst first, bounded, nothing rendered that a model wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.records import CaseResult, Run
from harness.report.digest import RunDigest, digest
from harness.report.inputs import ReportRun
from harness.report.night import WORST_FIRST
from harness.report.numbers import percent, readable
from harness.report.rows import CaseRow, rows
from harness.report.text import one_line, visible

LIMIT = 60_000
"""Bytes. GitHub refuses step summaries over 1 MiB and cuts comments at 65,536 characters."""
_HEAD = "| Status | Case | Error ratio | On device | What happened |\n|---|---|---:|---:|---|\n"


def markdown_summary(run: Run, results: Iterable[CaseResult], *, limit: int = LIMIT) -> str:
    """Verdict of the run, counts, and a table of cases with the worst first, in at most `limit` bytes."""
    kept = list(results)
    seen = digest(ReportRun(run=run, results=kept))
    return summary(run.run_id, rows(run.run_id, run.plan, kept), seen, limit=limit)


def summary(run_id: str, table: Iterable[CaseRow], seen: RunDigest, *, limit: int = LIMIT) -> str:
    """The summary from rows and a digest that are there already."""
    judged, facts = seen.night, seen.facts
    counts = " · ".join(f"**{judged.counts[s]:,}** {s}" for s in WORST_FIRST[::-1] if judged.counts.get(s))
    problems = "".join(f"> {_plain(problem)}\n" for problem in facts.problems)
    head = f"## Conformance: {_plain(judged.sentence)}\n\n{counts}\n\n{problems}\nRun {_code(run_id)}\n\n"
    return _bounded(head, list(table), limit)


def _bounded(head: str, table: list[CaseRow], limit: int) -> str:
    order = {status.value: place for place, status in enumerate(WORST_FIRST)}
    lines = [_line(row) for row in sorted(table, key=lambda row: (order[row.status], row.case_id))]
    text = head + _HEAD
    budget = limit - len(text.encode()) - 80
    fitting = 0
    for line in lines:
        budget -= len(line.encode())
        if budget < 0:
            break
        fitting += 1
    left_out = len(lines) - fitting
    note = f"\n{left_out:,} more cases are in the report.\n" if left_out else ""
    return text + "".join(lines[:fitting]) + note


def _line(row: CaseRow) -> str:
    cells = [
        row.status,
        _code(one_line(row.case_id, 200)),
        readable(row.error_ratio, "×") if row.error_ratio is not None else "–",
        percent(row.device_share),
        _plain(one_line(row.sentence, 300)),
    ]
    return f"| {' | '.join(cells)} |\n"


def _plain(text: str) -> str:
    """The text with all that Markdown, HTML or GitHub would act on as numeric entities."""
    return re.sub(r"[^\w\s.,;:()%=+/'’“”–…·×-]|_", lambda found: f"&#{ord(found.group())};", visible(text))


def _code(text: str) -> str:
    """The text as a code span that no backtick inside it ends; a pipe is escaped for the table."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{visible(text)}{pad}{fence}".replace("|", "\\|")
