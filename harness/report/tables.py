"""The case table as CSV, JSON and Parquet: the same rows, the same columns, nothing rounded."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.report.numbers import dumps, json_number
from harness.report.rows import COLUMNS, CaseRow
from harness.report.text import visible

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_table(rows: Iterable[CaseRow]) -> str:
    """The rows as CSV with a header; no cell of text starts a spreadsheet formula."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_csv_cell(getattr(row, column)) for column in COLUMNS] for row in rows)
    return stream.getvalue()


def json_table(rows: Iterable[CaseRow]) -> str:
    """The rows as one strict JSON array of objects, a line each."""
    lines = (dumps({column: _json_cell(getattr(row, column)) for column in COLUMNS}) for row in rows)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def parquet_table(rows: Iterable[CaseRow], path: Path) -> None:
    """Write the rows as a Parquet file with typed columns."""
    import pyarrow
    from pyarrow import parquet

    kept = list(rows)
    kinds = {"str": pyarrow.string(), "float": pyarrow.float64(), "int": pyarrow.int64()}
    columns = {}
    for field in fields(CaseRow):
        values = [getattr(row, field.name) for row in kept]
        name = str(field.type).partition(" ")[0]
        kind = kinds.get(name, pyarrow.timestamp("us", tz="UTC"))
        columns[field.name] = pyarrow.array([visible(v) if isinstance(v, str) else v for v in values], kind)
    parquet.write_table(pyarrow.table(columns), path)


def _csv_cell(value: Any) -> str | int | float | None:
    if isinstance(value, str):
        text = visible(value)
        return f"'{text}" if text.startswith(_FORMULA) else text
    if isinstance(value, float):
        return json_number(value)
    return value.isoformat() if isinstance(value, datetime) else value


def _json_cell(value: Any) -> Any:
    if isinstance(value, float):
        return json_number(value)
    return value.isoformat() if isinstance(value, datetime) else value
