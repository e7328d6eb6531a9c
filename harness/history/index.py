"""Hundreds of runs, answered fast: Parquet tables by month, sorted by what is asked for.

Below a root, which is a folder or any URL that fsspec opens::

    index.json                        schema version
    runs/<run_id>.json                environment, profile, missing cases
    cases/2026-01/<run_id>.parquet    a row per case, sorted by case
    metrics/2026-01/...               a row per number, sorted by case
    ops/2026-01/...                   a row per op, state and case, sorted by op

A run only ever adds files of its own, so two machines can append at once and lose nothing. `compact` joins
the files of a month; rows that are there twice while it works are read once.
"""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from itertools import takewhile
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import StoredDataError, UsageError
from harness.history.rows import SCHEMAS, case_rows, metric_rows, op_rows, samples
from harness.history.views import RunView, Sample, lane, view
from harness.records import CaseResult, Environment, ExpectationMode, Run

SCHEMA = 1
"""Version of the index. An older one is rebuilt from the run directories, a newer one refused."""
SORT = {"cases": "case", "metrics": "case", "ops": "op"}
GROUP_ROWS = 8192
"""Rows that are read for one answer; smaller groups make larger footers."""
MANY = 8
"""Files in the month at hand beyond which `add` joins them; other months are joined at once."""


class RunEntry(BaseModel):
    """runs/<run_id>.json: what a run was, beside its rows."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    started: datetime
    finished: bool
    profile: str | None
    selection: str
    missing: tuple[str, ...]
    environment: Environment
    expectations: ExpectationMode = ExpectationMode.GATING


class Index:
    """The history of many runs. Reading needs no run directory."""

    def __init__(self, url: str) -> None:
        """Open an index, which may be none yet. Raises StoredDataError for one of a newer schema."""
        try:
            self.fs, root = fsspec.url_to_fs(url)
        except (ValueError, ImportError) as error:  # an unknown protocol, or one whose package is not installed
            raise UsageError(f"{url}: {error}; name a folder, or a URL that fsspec opens here") from None
        self.root = root.rstrip("/")
        if self.fs.isfile(self.root):
            raise UsageError(f"{url}: is a file; name a folder for the index")
        self._check_schema()

    def _check_schema(self) -> None:
        path = f"{self.root}/index.json"
        if not self.fs.exists(path):
            return  # it begins with the first run
        try:
            found = json.loads(self.fs.cat_file(path))["schema"]
        except (ValueError, KeyError, TypeError):
            raise StoredDataError(f"{path}: is damaged; remove the index and add the run directories again") from None
        if found != SCHEMA:
            remedy = "upgrade the harness" if found > SCHEMA else "add the run directories to a new index"
            raise StoredDataError(f"{path}: schema {found}, this harness has {SCHEMA}; {remedy}")

    def add(self, run: Run, results: Sequence[CaseResult]) -> None:
        """Add a run; one that is there already is written again."""
        tables = {
            "cases": case_rows(view(run, results).samples.values()),
            "metrics": metric_rows(results),
            "ops": op_rows(results),
        }
        seen = {result.case.id for result in results}
        entry = RunEntry(
            run_id=run.run_id,
            started=run.started,
            finished=run.finished is not None,
            profile=run.profile,
            selection=run.selection,
            missing=tuple(case.id for case in run.plan if case.id not in seen),
            environment=run.environment,
            expectations=run.expectations,
        )
        self.add_rows(entry, tables)

    def add_rows(self, entry: RunEntry, tables: dict[str, dict[str, list[Any]]]) -> None:
        """Add a run's rows, column by column. The entry is written last: with it the run counts."""
        if not self.fs.exists(f"{self.root}/index.json"):
            self._write(f"{self.root}/index.json", json.dumps({"schema": SCHEMA}).encode())
        for name, columns in tables.items():
            table = pa.table(columns, schema=SCHEMAS[name])
            table = _with_run(table, entry).sort_by(SORT[name])
            now = f"{self.root}/{name}/{entry.started:%Y-%m}"
            self._write(f"{now}/{entry.run_id}.parquet", _parquet(table))
            for month in self._months(name):
                if len(self._files(month)) > (MANY if month == now else 1):
                    self._compact_month(name, month)
        self._write(f"{self.root}/runs/{entry.run_id}.json", entry.model_dump_json().encode())

    def compact(self) -> None:
        """Join the files of each month of each table."""
        for name in SORT:
            for month in self._months(name):
                self._compact_month(name, month)

    def prune(self, before: datetime) -> None:
        """Forget the months that ended before a day, and their runs."""
        limit = f"{before:%Y-%m}"
        for name in SORT:
            for month in self._months(name):
                if month.rpartition("/")[2] < limit:
                    self.fs.rm(month, recursive=True)
        for entry in self.entries:
            if f"{entry.started:%Y-%m}" < limit:
                self.fs.rm(f"{self.root}/runs/{entry.run_id}.json")
        self.__dict__.pop("entries", None)

    @cached_property
    def entries(self) -> tuple[RunEntry, ...]:
        """The runs, oldest first."""
        found = []
        paths = self._run_files()
        contents: dict[str, bytes] = self.fs.cat(paths) if paths else {}
        for path, data in contents.items():
            try:
                found.append(RunEntry.model_validate_json(data))
            except ValidationError as error:
                raise StoredDataError(f"{path}: {error.errors()[0]['msg']}; add the run again") from None
        return tuple(sorted(found, key=lambda entry: (entry.started, entry.run_id)))

    def case(self, case_id: str) -> list[tuple[str, Sample]]:
        """Return a case's samples with their run ids, oldest first."""
        table = self._read("cases", case_id, case_id)
        found = zip(table["run_id"].to_pylist(), table["started"].to_pylist(), samples(table), strict=True)
        return [(run_id, one) for run_id, _, one in sorted(found, key=lambda row: (row[1], row[0]))]

    def model(self, model: str) -> pa.Table:
        """Return the rows of all cases of a model, oldest first."""
        return self._read("cases", f"{model}/", f"{model}0").sort_by([("started", "ascending"), ("case", "ascending")])

    def metric(self, case_id: str, metric: str) -> pa.Table:
        """Return one number of a case over time, by output and role, oldest first."""
        table = self._read("metrics", case_id, case_id)
        return table.filter(pc.equal(table["metric"], metric)).sort_by("started")

    def op(self, op: str) -> pa.Table:
        """Return where an op ran and in which state, oldest first."""
        return self._read("ops", op, op).sort_by("started")

    def views(self, count: int, until: str | None = None) -> list[RunView]:
        """Return the last ``count`` runs, oldest first; ``until`` is the id of the last one wanted."""
        entries = [entry for entry in self.entries if until is None or _upto(self.entries, entry, until)]
        wanted = {entry.run_id: entry for entry in entries[-count:]}
        months = sorted({f"{entry.started:%Y-%m}" for entry in wanted.values()})
        by_run: dict[str, dict[str, Sample]] = {run_id: {} for run_id in wanted}
        for month in months:
            table = self._scan(f"{self.root}/cases/{month}", wanted)
            for run_id, one in zip(table["run_id"].to_pylist(), samples(table), strict=True):
                by_run[run_id][one.case] = one
        return [_view(entry, by_run[run_id]) for run_id, entry in wanted.items()]

    def _read(self, name: str, low: str, high: str) -> pa.Table:
        """Return rows whose sort key lies from ``low`` to ``high``, reading the groups that can hold them."""
        parts = []
        for month in self._months(name):
            for path in self._files(month):
                with self._open(path) as file:
                    parts.append(_groups(file, SORT[name], low, high))
        return self._once(name, parts)

    def _scan(self, month: str, wanted: Iterable[str]) -> pa.Table:
        parts = []
        for path in self._files(month):
            with self._open(path) as file:
                parts.append(_of_runs(file.read(), wanted))
        return self._once("cases", parts)

    def _once(self, name: str, parts: list[pa.Table]) -> pa.Table:
        """Return the rows of runs that count, those of each run from one file only."""
        known = {path.rpartition("/")[2].removesuffix(".json") for path in self._run_files()}
        seen: set[str] = set()
        kept = []
        for part in parts:
            runs = set(pc.unique(part["run_id"]).to_pylist())
            fresh = (runs & known) - seen
            seen |= fresh
            kept.append(
                part if fresh == runs else part.filter(pc.is_in(part["run_id"], pa.array(list(fresh), pa.string())))
            )
        return pa.concat_tables(kept) if kept else _with_run(SCHEMAS[name].empty_table(), None)

    def _compact_month(self, name: str, month: str) -> None:
        files = self._files(month)
        if len(files) < 2:
            return
        parts = []
        seen: set[str] = set()
        for path in files:
            with self._open(path) as file:
                table = file.read()
            runs = set(pc.unique(table["run_id"]).to_pylist())
            parts.append(_of_runs(table, runs - seen) if runs & seen else table)
            seen |= runs
        joined = pa.concat_tables(parts).sort_by([(SORT[name], "ascending"), ("started", "ascending")])
        digest = hashlib.sha256("\n".join(sorted(seen)).encode()).hexdigest()[:16]
        target = f"{month}/joined-{digest}.parquet"
        self._write(target, _parquet(joined))
        for path in files:
            if path != target:
                self.fs.rm(path)

    def _run_files(self) -> list[str]:
        return self._listed(f"{self.root}/runs", ".json")

    @contextmanager
    def _open(self, path: str) -> Iterator[pq.ParquetFile]:
        if isinstance(self.fs, LocalFileSystem):
            with pq.ParquetFile(path, memory_map=True) as file:
                yield file
        else:
            with self.fs.open(path, "rb") as stream:
                yield pq.ParquetFile(stream)

    def _months(self, name: str) -> list[str]:
        return self._listed(f"{self.root}/{name}")

    def _files(self, month: str) -> list[str]:
        """Files of a month; a run that was added again is read from its own file before the joined ones."""
        return sorted(self._listed(month, ".parquet"), key=lambda path: ("/joined-" in path, path))

    def _listed(self, folder: str, suffix: str = "") -> list[str]:
        """Return what lies in a folder, in order; unfinished files begin with a dot."""
        if not self.fs.isdir(folder):
            return []
        paths = [str(path).rstrip("/") for path in self.fs.ls(folder, detail=False)]
        return sorted(p for p in paths if p.endswith(suffix) and not p.rpartition("/")[2].startswith("."))

    def _write(self, path: str, data: bytes) -> None:
        """Write a file as a whole or not at all."""
        folder, _, name = path.rpartition("/")
        self.fs.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}"
        self.fs.pipe_file(temporary, data)
        self.fs.mv(temporary, path)
        self.__dict__.pop("entries", None)


def _of_runs(table: pa.Table, runs: Iterable[str]) -> pa.Table:
    return table.filter(pc.is_in(table["run_id"], pa.array(list(runs), pa.string())))


def _with_run(table: pa.Table, entry: RunEntry | None) -> pa.Table:
    stamp = pa.scalar(entry.started if entry else None, pa.timestamp("us", tz="UTC"))
    runs, stamps = pa.repeat(entry.run_id if entry else "", len(table)), pa.repeat(stamp, len(table))
    return table.add_column(0, "started", stamps).add_column(0, "run_id", runs)


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", row_group_size=GROUP_ROWS, write_page_index=False)
    return sink.getvalue()


def _groups(file: pq.ParquetFile, key: str, low: str, high: str) -> pa.Table:
    """Return the rows between two keys, reading only the row groups that can hold them.

    Rows are sorted by the key, so the first such group is found by halving.
    """
    column, metadata = file.schema_arrow.names.index(key), file.metadata

    def bounds(number: int) -> tuple[str, str]:
        statistics = metadata.row_group(number).column(column).statistics
        return (statistics.min, statistics.max) if statistics and statistics.has_min_max else ("", high)

    groups = range(metadata.num_row_groups)
    first = bisect_left(groups, low, key=lambda number: bounds(number)[1])
    wanted = list(takewhile(lambda number: bounds(number)[0] <= high, groups[first:]))
    table = file.read_row_groups(wanted)
    return table.filter(pc.and_(pc.greater_equal(table[key], low), pc.less_equal(table[key], high)))


def _upto(entries: Sequence[RunEntry], entry: RunEntry, until: str) -> bool:
    last = next((one for one in entries if one.run_id == until), None)
    if last is None:
        raise StoredDataError(f"run {until} is not in the index; add its directory first")
    return (entry.started, entry.run_id) <= (last.started, last.run_id)


def _view(entry: RunEntry, found: dict[str, Sample]) -> RunView:
    return RunView(
        run_id=entry.run_id,
        started=entry.started,
        environment=entry.environment,
        samples=found,
        planned=frozenset(found) | frozenset(entry.missing),
        finished=entry.finished,
        profile=entry.profile,
        selection=entry.selection,
        lane=lane(entry.environment, entry.expectations),
        expectations=entry.expectations,
    )
