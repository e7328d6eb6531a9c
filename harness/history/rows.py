"""Results as rows of the index's tables, and rows as samples again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from harness.history.views import Sample
from harness.records import CaseResult, OutcomeKind, PairNumbers, Stage, Status
from harness.records.comparison import LogitNumbers

_TEXT = pa.string()
SCHEMAS = {
    "cases": pa.schema(
        [
            ("case", _TEXT),
            ("status", _TEXT),
            ("kind", _TEXT),
            ("stage", _TEXT),
            ("error", pa.float64()),
            ("seconds", pa.float64()),
            ("limits", _TEXT),
            ("inputs", _TEXT),
            ("checkpoint", _TEXT),
            ("retried", _TEXT),
            ("flags", _TEXT),
            ("sentence", _TEXT),
            ("expected", _TEXT),
            ("expectation_at", _TEXT),
        ]
    ),
    "metrics": pa.schema(
        [("case", _TEXT), ("output", _TEXT), ("role", _TEXT), ("metric", _TEXT), ("value", pa.float64())]
    ),
    "ops": pa.schema([("op", _TEXT), ("state", _TEXT), ("case", _TEXT), ("count", pa.int64())]),
}
"""Columns of the tables, beside ``run_id`` and ``started``, which all of them begin with."""


def case_rows(found: Iterable[Sample]) -> dict[str, list[Any]]:
    """Return samples by column. A pass needs no sentence: its numbers say it."""
    rows = [
        one._replace(
            limits=json.dumps(dict(one.limits)),  # type: ignore[arg-type]
            retried=" ".join(one.retried),  # type: ignore[arg-type]
            flags=" ".join(one.flags),  # type: ignore[arg-type]
            sentence="" if one.status is Status.PASS else one.sentence[:500],
        )
        for one in found
    ]
    return {name: list(values) for name, values in zip(Sample._fields, _columns(rows), strict=True)}


def _columns(rows: Sequence[Sample]) -> Iterable[Sequence[Any]]:
    return zip(*rows, strict=True) if rows else [[] for _ in Sample._fields]


def metric_rows(results: Iterable[CaseResult]) -> dict[str, list[Any]]:
    """Return all numbers of all comparisons, by column."""
    rows = [
        (result.case.id, output.name, role, metric, float(value))
        for result in results
        for output in (result.comparison.outputs if result.comparison else ())
        for role, record in (
            ("candidate", output.candidate),
            ("control", output.control),
            ("candidate", output.candidate_logits),
            ("control", output.control_logits),
        )
        for metric, value in _numbers(record)
    ]
    return _by_column("metrics", rows)


def _numbers(record: PairNumbers | LogitNumbers | None) -> Iterable[tuple[str, float]]:
    for name, value in record or ():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value


def op_rows(results: Iterable[CaseResult]) -> dict[str, list[Any]]:
    """Return how often each op ran in which state, by column; variants of an op are joined."""
    counts: dict[tuple[str, str, str], int] = {}
    for result in results:
        for observation in result.observations.values():
            for use in observation.device.ops if observation.device else ():
                key = (use.op, use.state.value, result.case.id)
                counts[key] = counts.get(key, 0) + use.count
    return _by_column("ops", [(*key, count) for key, count in counts.items()])


def _by_column(table: str, rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    columns = zip(*rows, strict=True) if rows else [[] for _ in SCHEMAS[table].names]
    return {name: list(values) for name, values in zip(SCHEMAS[table].names, columns, strict=True)}


def samples(table: pa.Table) -> list[Sample]:
    """Return the rows of a ``cases`` table as samples. Each distinct text is converted once."""
    columns = [
        _mapped(table["case"], str),
        _mapped(table["status"], Status),
        _mapped(table["kind"], OutcomeKind),
        _mapped(table["stage"], Stage),
        table["error"].to_pylist(),
        table["seconds"].to_pylist(),
        _mapped(table["limits"], lambda text: tuple(json.loads(text).items())),
        _mapped(table["inputs"], str),
        _mapped(table["checkpoint"], str),
        _mapped(table["retried"], lambda text: tuple(OutcomeKind(kind) for kind in text.split())),
        _mapped(table["flags"], lambda text: tuple(text.split())),
        *(_mapped(table[name], str) for name in ("sentence", "expected", "expectation_at")),
    ]
    return list(map(Sample._make, zip(*columns, strict=True)))


def _mapped(column: pa.ChunkedArray, convert: Any) -> list[Any]:
    encoded = column.combine_chunks().dictionary_encode()
    words = [None if word is None else convert(word) for word in encoded.dictionary.to_pylist()]
    if len(words) == 1 and not encoded.null_count:
        return words * len(encoded)
    if encoded.null_count:
        return [None if at is None else words[at] for at in encoded.indices.to_pylist()]
    return [words[at] for at in encoded.indices.to_numpy()]
