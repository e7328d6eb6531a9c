"""The table to quote in release notes: which models work, with which versions, verified together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.records import Status
from harness.report.matrix import Configuration, ModelEntry, configuration, configurations
from harness.report.rows import CaseRow
from harness.report.text import file_name, shown

_WORDS: Mapping[str, tuple[str, str]] = {
    "verified": ("verified", "brightgreen"),
    "partly": ("partly verified", "yellow"),
    "known": ("known issue", "blue"),
    "failing": ("failing", "red"),
    "unverified": ("not verified", "lightgrey"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Support:
    """One model's line: its word and the status per configuration (None: not planned)."""

    model: str
    task: str
    origin: str
    level: str
    word: str
    cells: tuple[CaseRow | None, ...]
    badge: str
    """File of the badge, relative to the site."""


def support(rows: Sequence[ModelEntry], table: Mapping[str, CaseRow]) -> list[Support]:
    """A line per model of the matrix."""
    columns = configurations(rows)
    return [_line(row, columns, table) for row in rows]


def _line(row: ModelEntry, columns: Sequence[Configuration], table: Mapping[str, CaseRow]) -> Support:
    cells = {configuration(case): table[case.id] for case in row.cases}
    level = support_level([Status(cell.status) for cell in cells.values()])
    return Support(
        model=shown(row.model, 300),
        task=row.task,
        origin=next((cell.origin for cell in cells.values() if cell.origin), ""),
        level=level,
        word=_WORDS[level][0],
        cells=tuple(cells.get(column) for column in columns),
        badge=f"badges/{file_name(f'{row.model}/{row.task}', '.json')}",
    )


def support_level(statuses: Sequence[Status]) -> str:
    """The level of a model with these statuses. Skipped and missing cases never count as verified."""
    found = set(statuses)
    if found & {Status.FAIL, Status.ERROR, Status.XPASS}:
        return "failing"
    if Status.PASS not in found:
        return "known" if Status.XFAIL in found else "unverified"
    return "verified" if found == {Status.PASS} else "partly"


def badge(line: Support) -> dict[str, Any]:
    """The badge in the endpoint schema of shields.io."""
    passed = sum(1 for cell in line.cells if cell and cell.status == Status.PASS)
    planned = sum(1 for cell in line.cells if cell)
    word, colour = _WORDS[line.level]
    return {"schemaVersion": 1, "label": line.model, "message": f"{word} {passed}/{planned}", "color": colour}


def night_badge(level: str, sentence: str) -> dict[str, Any]:
    """The badge of the whole run: green only for a complete run with nothing unexpected."""
    colour = {"good": "brightgreen", "bad": "red"}.get(level, "yellow")
    return {"schemaVersion": 1, "label": "spyre conformance", "message": sentence, "color": colour}
