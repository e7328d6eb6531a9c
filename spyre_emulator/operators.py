"""The operator table: what the published stack does with each aten operator, eager and compiled.

Read by the eager dispatcher, the plan compiler, recordings and the documentation. The rows are
``data/operators.tsv``: first every row of torch-spyre's supported_operations.md, then what other sources add.
"""

from __future__ import annotations

import csv
import functools
from importlib import resources
from typing import Any, NamedTuple

from spyre_emulator import constraints

ENABLED = "spyre_enabled"
FALLBACK = "cpu_fallback"
FAILED = "spyre_failed"
MISSING = "not_implemented"
ON_DEVICE = frozenset({ENABLED, FAILED})
"""States whose operators the device executes, rightly or not."""


REPLACED = ("decomposed", "custom")
"""States of the table in which an operator runs in another form than its own."""


class OperatorRow(NamedTuple):
    """One operation and the published facts about it."""

    published: str
    """Name in supported_operations.md; empty for a row from another source."""
    aten: tuple[str, ...]
    """Names of the aten operators behind it, without overloads."""
    state: str
    """``native``, ``decomposed``, ``custom``, ``cpu_fallback`` or ``unsupported``."""
    eager: bool
    compiled: bool
    constraint: str
    source: str


@functools.cache
def table() -> tuple[OperatorRow, ...]:
    """Every row, in the order of the published table."""
    text = resources.files("spyre_emulator").joinpath("data/operators.tsv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(
        OperatorRow(
            published=row["published"],
            aten=tuple(row["aten"].split()),
            state=row["state"],
            eager=row["eager"] == "yes",
            compiled=row["compiled"] == "yes",
            constraint=row["constraint"] or "",
            source=row["source"] or "",
        )
        for row in rows
    )


@functools.cache
def _by_name() -> dict[str, list[OperatorRow]]:
    index: dict[str, list[OperatorRow]] = {}
    for row in table():
        for name in row.aten:
            index.setdefault(name, []).append(row)
    return index


def rows_of(op: Any) -> list[OperatorRow]:
    """The rows of an overload; in-place and ``out=`` forms share those of their functional form."""
    name = op._schema.name.partition("::")[2]
    index = _by_name()
    return index.get(name) or index.get(name.rstrip("_")) or []


@functools.cache
def state_of(op: Any, *, compiled: bool) -> str:
    """Where the published stack executes `op` in the given mode, whatever its operands."""
    for row in rows_of(op):
        if row.state != "unsupported" and (row.compiled if compiled else row.eager):
            return FALLBACK if row.state == "cpu_fallback" else ENABLED
    return MISSING


def replacement(overload: str) -> str | None:
    """How the published stack brings an operator to the device in an equivalent form, by the overload's full name.

    ``decomposed`` into other operators or made ``custom``; None for one with a kernel of its own, and an unknown one.
    """
    name = overload.split(".")[1] if "." in overload else overload
    rows = _by_name().get(name) or _by_name().get(name.rstrip("_")) or []
    return next((row.state for row in rows if row.state in REPLACED), None)


def state_with_operands(op: Any, operands: tuple[constraints.Geometry, ...], *, compiled: bool) -> str:
    """`state_of`, with dtypes that the device's arithmetic lacks and spans it cannot address taken into account."""
    state = state_of(op, compiled=compiled)
    if state != ENABLED:
        return state
    if constraints.refused_operands(op, operands) is not None:
        return MISSING
    return FAILED if constraints.failed_span(op, operands) is not None else ENABLED


def why_missing(op: Any, *, compiled: bool) -> str:
    """One clause for an error: the constraint of the table, or that no row exists."""
    rows = rows_of(op)
    if not rows:
        return "it is in no published list of supported operations"
    mode = "compiled" if compiled else "eager"
    return rows[0].constraint or f"it has no {mode} kernel"
