"""The table as text, Markdown and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spyre_emulator.configuration import configuration
from spyre_emulator.fidelity.figures import Row, Table, Value

SCHEMA = 1
_COLUMNS = ("figure", "published", "emulated", "ratio", "rule", "origin", "status", "source")


def _text(value: Value | None) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else value


def _rule(row: Row) -> str:
    figure = row.figure
    if figure.measure is None:
        return "-"
    return f"factor {figure.factor:g}" if figure.rule == "within" else figure.rule


def _cells(row: Row) -> tuple[str, ...]:
    figure = row.figure
    ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
    name = f"{figure.topic}: {figure.quantity}"
    values = (_text(figure.published), _text(row.emulated), ratio)
    return (name, *values, _rule(row), figure.origin, row.status, figure.source)


def summary(table: Table) -> str:
    """One sentence: how many rows, how many met."""
    numeric = sum(row.is_numeric for row in table.rows)
    by_status = {s: sum(row.status == s for row in table.rows) for s in ("met", "explained", "unexplained")}
    verdict = "holds" if table.holds else "does not hold"
    return (
        f"{len(table.rows)} figures: {by_status['met']} met, {by_status['explained']} explained, "
        f"{by_status['unexplained']} unexplained; {table.share_met:.1%} of {numeric} numeric rows met, "
        f"{table.required_share:.0%} required, {table.share_of_predictions_met:.1%} of the predicted ones: "
        f"the table {verdict}"
    )


def as_text(table: Table) -> str:
    """Aligned columns for a terminal, then what is not met with its reason, then the summary."""
    lines = [_COLUMNS, *map(_cells, table.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_COLUMNS))]
    rows = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    notes = [f"{r.figure.id}: {r.figure.explanation or 'NOT EXPLAINED'}" for r in table.rows if r.status != "met"]
    return "\n".join([*rows, "", *notes, "", summary(table)]) + "\n"


def as_markdown(table: Table) -> str:
    """A page with the table."""
    head = ["# Fidelity of the emulated Spyre", "", summary(table) + ".", ""]
    head += ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    rows = ["| " + " | ".join(c.replace("|", "\\|") for c in _cells(row)) + " |" for row in table.rows]
    notes = [f"- `{r.figure.id}`: {r.figure.explanation or 'not explained'}" for r in table.rows if r.status != "met"]
    settings = [f"- {name}: {value or '(none)'}" for name, value in configuration().items()]
    return "\n".join([*head, *rows, "", "## Not met", "", *notes, "", "## Settings", "", *settings]) + "\n"


def as_json(table: Table) -> dict[str, Any]:
    """Everything of the table, for programs."""
    return {
        "schema": SCHEMA,
        "holds": table.holds,
        "share_met": table.share_met,
        "share_of_predictions_met": table.share_of_predictions_met,
        "required_share": table.required_share,
        "configuration": configuration(),
        "rows": [_row(row) for row in table.rows],
    }


def _row(row: Row) -> dict[str, Any]:
    figure = row.figure
    return {
        "id": figure.id,
        "topic": figure.topic,
        "quantity": figure.quantity,
        "published": figure.published,
        "emulated": row.emulated,
        "ratio": row.ratio,
        "rule": figure.rule,
        "factor": figure.factor,
        "origin": figure.origin,
        "status": row.status,
        "source": figure.source,
        "explanation": figure.explanation,
    }


def store(table: Table, directory: Path) -> tuple[Path, Path]:
    """Write ``fidelity.json`` and ``fidelity.md`` into `directory`, which is made; their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    data, page = directory / "fidelity.json", directory / "fidelity.md"
    # Infinities are written as the strings that float() reads: JSON has no number for them.
    text = json.dumps(_finite(as_json(table)), indent=1, ensure_ascii=False, allow_nan=False)
    data.write_text(text + "\n", encoding="utf-8")
    page.write_text(as_markdown(table), encoding="utf-8")
    return data, page


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value
