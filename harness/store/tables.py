"""The numbers of a run as flat tables: ops.parquet and metrics.parquet."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.records import CaseResult

if TYPE_CHECKING:
    import pyarrow

AT_A_TIME = 256
"""Results that become rows together; a large run is never in memory as a whole."""

Row = dict[str, Any]


def write_tables(directory: Path, results: Iterable[CaseResult]) -> None:
    """Write both tables, each replaced as a whole."""
    import pyarrow
    from pyarrow import parquet

    text, number = pyarrow.string(), pyarrow.float64()
    ops = pyarrow.schema(
        [(name, text) for name in ("case", "model", "role", "op", "state")]
        + [("count", pyarrow.int64())]
        + [(name, text) for name in ("shapes", "strides", "dtypes")]
    )
    metrics = pyarrow.schema(
        [(name, text) for name in ("case", "model", "output", "role", "metric")] + [("value", number)]
    )
    files = {name: directory / f".{name}.parquet" for name in ("ops", "metrics")}
    with parquet.ParquetWriter(files["ops"], ops) as op_file, parquet.ParquetWriter(files["metrics"], metrics) as rest:
        for batch in _batches(results):
            op_file.write_table(_table(ops, itertools.chain.from_iterable(map(_op_rows, batch))))
            rest.write_table(_table(metrics, itertools.chain.from_iterable(map(_metric_rows, batch))))
    for name, temporary in files.items():
        temporary.replace(directory / f"{name}.parquet")


def _table(schema: pyarrow.Schema, rows: Iterable[Row]) -> pyarrow.Table:
    import pyarrow

    return pyarrow.Table.from_pylist(list(rows), schema=schema)


def _batches(results: Iterable[CaseResult]) -> Iterator[list[CaseResult]]:
    stream = iter(results)
    while batch := list(itertools.islice(stream, AT_A_TIME)):
        yield batch


def _op_rows(result: CaseResult) -> Iterator[Row]:
    for role, observation in result.observations.items():
        for use in observation.device.ops if observation.device else ():
            yield {
                "case": result.case.id,
                "model": result.case.model,
                "role": role.value,
                "op": use.op,
                "state": use.state.value,
                "count": use.count,
                "shapes": _text(tuple(o.shape for o in use.operands)),
                "strides": _text(tuple(o.strides for o in use.operands)),
                "dtypes": _text(tuple(o.dtype for o in use.operands)),
            }


@lru_cache(maxsize=4096)
def _text(values: tuple[Any, ...]) -> str:
    """As JSON. The ops of a run have few geometries, and many rows of each."""
    return json.dumps(values)


def _metric_rows(result: CaseResult) -> Iterator[Row]:
    for output in result.comparison.outputs if result.comparison else ():
        for role in ("candidate", "control"):
            for record in (getattr(output, role), getattr(output, f"{role}_logits")):
                for metric, value in record.model_dump().items() if record else ():
                    if isinstance(value, int | float):
                        yield {
                            "case": result.case.id,
                            "model": result.case.model,
                            "output": output.name,
                            "role": role,
                            "metric": metric,
                            "value": float(value),
                        }
