"""Run <-> files: the only code that opens a run directory.

A run directory holds ``run.json`` (plan, environment, totals), ``cases.jsonl`` (a line per case, flushed
to the disk as the case ends), ``logs/`` and, when the run has ended, ``ops.parquet`` and
``metrics.parquet``. Every file but cases.jsonl is replaced as a whole or not at all.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.errors import StoreError, UsageError
from harness.records import RUN_SCHEMA, CaseResult, Run, Status

RUN_FILE = "run.json"
CASES_FILE = "cases.jsonl"


@dataclass(frozen=True)
class StoredRun:
    """A run as it lies on the disk."""

    run: Run
    results: tuple[CaseResult, ...]
    directory: Path
    problems: tuple[str, ...] = ()
    """What is damaged: a torn last line, a case that was never planned."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Ids of cases that were planned and have no result."""
        seen = {result.case.id for result in self.results}
        return tuple(case.id for case in self.run.plan if case.id not in seen)


def new_run_id(now: datetime) -> str:
    """An id that sorts by time: ``20260131T020304Z-1a2b3c``."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` entirely, or leave it as it was (a full disk included)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class RunWriter:
    """The one writer of a run directory. Safe to call from the threads that wait for cases."""

    def __init__(self, directory: Path, run: Run) -> None:
        self.directory = directory
        self._run = run
        self._lock = threading.Lock()
        self._totals: Counter[Status] = Counter()
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        self._write_run(run)
        repair_tail(directory / CASES_FILE)
        # A descriptor opened once: a disk that fills later cannot stop us from opening it.
        self._cases = os.open(directory / CASES_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, result: CaseResult) -> None:
        """Write one case's line and flush it to the disk."""
        line = (result.model_dump_json() + "\n").encode()
        with self._lock:
            start = os.lseek(self._cases, 0, os.SEEK_END)
            try:
                written = 0
                while written < len(line):
                    written += os.write(self._cases, line[written:])
                os.fsync(self._cases)
            except OSError as error:
                os.ftruncate(self._cases, start)  # never leave half a line before the next one
                raise StoreError(
                    f"{self.directory / CASES_FILE}: cannot write the result of {result.case.id}: "
                    f"{error.strerror}. Results before it are kept; free space and use --resume."
                ) from error
            self._totals[result.verdict.status] += 1

    def finish(self, finished: datetime, exit_status: int) -> Run:
        """Write totals and tables; returns the finished run."""
        stored = read_run(self.directory)
        totals = Counter(result.verdict.status for result in stored.results)
        run = self._run.model_copy(update={"finished": finished, "exit_status": exit_status, "totals": dict(totals)})
        self._write_run(run)
        write_tables(self.directory, stored.results)
        os.close(self._cases)
        return run

    def _write_run(self, run: Run) -> None:
        write_atomically(self.directory / RUN_FILE, run.model_dump_json(indent=1).encode())


def repair_tail(path: Path) -> None:
    """Cut a torn last line, so that what is appended next starts on a line of its own."""
    if not path.exists():
        return
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end != len(data):
        os.truncate(path, end)


def read_run(directory: Path) -> StoredRun:
    """Read a run directory. Raises UsageError when it is none, StoreError when it cannot be trusted."""
    run_file = directory / RUN_FILE
    if not run_file.is_file():
        half_gone = (directory / CASES_FILE).exists()
        hint = "cases.jsonl is there: the directory is half gone" if half_gone else "it is no run directory"
        raise UsageError(f"{directory}: {RUN_FILE} is missing; {hint}. Name a directory that 'run' wrote.")
    run = _parse_run(run_file)
    results, problems = _read_cases(directory / CASES_FILE)
    planned = {case.id for case in run.plan}
    problems += [f"{r.case.id}: has a result but was not planned" for r in results if r.case.id not in planned]
    return StoredRun(run, tuple(results), directory, tuple(problems))


def _parse_run(path: Path) -> Run:
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        version = data.get("schema_version")
    except (ValueError, AttributeError) as error:
        raise StoreError(f"{path}: not JSON ({error}). The file is damaged; restore or remove the run.") from error
    if not isinstance(version, int):
        raise StoreError(f"{path}: no schema_version. It was not written by this harness.")
    if version > RUN_SCHEMA:
        raise StoreError(
            f"{path}: schema {version} is newer than this harness understands ({RUN_SCHEMA}). Upgrade the harness."
        )
    try:
        return Run.model_validate(data)
    except ValidationError as error:
        raise StoreError(f"{path}: {_first(error)}. The file is damaged or from another program.") from error


def _read_cases(path: Path) -> tuple[list[CaseResult], list[str]]:
    """Results in the order they were written, the last one of a case winning, and what was wrong."""
    results: dict[str, CaseResult] = {}
    problems: list[str] = []
    if not path.exists():
        return [], [f"{path.name}: missing"]
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            result = CaseResult.model_validate_json(line)
        except ValidationError as error:
            torn = number == len(lines)
            what = "torn last line, written when the run was killed" if torn else _first(error)
            problems.append(f"{path.name}:{number}: {what}")
            continue
        results[result.case.id] = result
    return list(results.values()), problems


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])


def write_tables(directory: Path, results: tuple[CaseResult, ...]) -> None:
    """Write ops.parquet and metrics.parquet: the results' numbers as flat tables."""
    import pandas as pd

    for name, rows in (("ops", _op_rows(results)), ("metrics", _metric_rows(results))):
        frame = pd.DataFrame(rows)
        temporary = directory / f".{name}.parquet"
        frame.to_parquet(temporary, index=False)
        temporary.replace(directory / f"{name}.parquet")


def _op_rows(results: tuple[CaseResult, ...]) -> list[dict[str, Any]]:
    rows = []
    for result in results:
        for role, observation in result.observations.items():
            for use in observation.device.ops if observation.device else ():
                rows.append(
                    {
                        "case": result.case.id,
                        "model": result.case.model,
                        "role": role.value,
                        "op": use.op,
                        "state": use.state.value,
                        "count": use.count,
                        "shapes": json.dumps([o.shape for o in use.operands]),
                        "strides": json.dumps([o.strides for o in use.operands]),
                        "dtypes": json.dumps([o.dtype for o in use.operands]),
                    }
                )
    return rows


def _metric_rows(results: tuple[CaseResult, ...]) -> list[dict[str, Any]]:
    rows = []
    for result in results:
        for output in result.comparison.outputs if result.comparison else ():
            for role in ("candidate", "control"):
                numbers = getattr(output, role)
                logits = getattr(output, f"{role}_logits")
                for record in (numbers, logits):
                    for metric, value in record.model_dump().items() if record else ():
                        if isinstance(value, int | float):
                            rows.append(
                                {
                                    "case": result.case.id,
                                    "model": result.case.model,
                                    "output": output.name,
                                    "role": role,
                                    "metric": metric,
                                    "value": float(value),
                                }
                            )
    return rows


def merge(directories: list[Path], out: Path) -> StoredRun:
    """Union of shards in a new run directory. A case with two different results is named and refused."""
    runs = [read_run(directory) for directory in directories]
    if not runs:
        raise UsageError("merge: no run directory given.")
    plan = {case.id: case for stored in runs for case in stored.run.plan}
    results: dict[str, CaseResult] = {}
    for stored in runs:
        for result in stored.results:
            other = results.setdefault(result.case.id, result)
            if other != result:
                raise StoreError(
                    f"{result.case.id}: {stored.directory} and another shard have different results. "
                    "Shards must not overlap; run them with the same --shard I/N plan."
                )
    first = min(runs, key=lambda stored: stored.run.run_id).run
    ended = [stored.run.finished for stored in runs]
    merged = first.model_copy(
        update={
            "plan": tuple(plan[key] for key in sorted(plan)),
            "finished": max((e for e in ended if e), default=None) if all(ended) else None,
            "totals": {},
        }
    )
    writer = RunWriter(out, merged)
    for key in sorted(results):
        writer.append(results[key])
    statuses = [stored.run.exit_status for stored in runs if stored.run.exit_status is not None]
    writer.finish(merged.finished or merged.started, max(statuses, default=1))
    return read_run(out)
