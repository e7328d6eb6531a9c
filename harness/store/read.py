"""Reads a run directory, and says what in it cannot be believed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from harness.errors import StoredDataError, UsageError
from harness.records import RUN_SCHEMA, CaseResult, Run
from harness.store.layout import CASES_FILE, RUN_FILE


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


class Line(NamedTuple):
    """One line of cases.jsonl."""

    number: int
    """From 1."""
    offset: int
    """Bytes before it."""
    result: CaseResult | None
    problem: str = ""
    """Why there is no result in it."""


def read_run(directory: Path) -> StoredRun:
    """Read a run directory. Raises UsageError when it is none, StoredDataError when it cannot be trusted."""
    run = read_plan(directory)
    results, problems = _read_cases(directory / CASES_FILE)
    planned = {case.id for case in run.plan}
    problems += [f"{r.case.id}: has a result but was not planned" for r in results if r.case.id not in planned]
    return StoredRun(run, tuple(results), directory, tuple(problems))


def read_plan(directory: Path) -> Run:
    """Read run.json alone. Raises as `read_run` does."""
    path = directory / RUN_FILE
    if not path.is_file():
        raise UsageError(f"{directory}: {_what_is_there(directory)}. Name a directory that 'run' wrote.")
    try:
        raw = path.read_bytes()
        data: dict[str, Any] = json.loads(raw)
        version = data.get("schema_version")
    except (ValueError, AttributeError, RecursionError) as error:
        raise StoredDataError(f"{path}: not JSON ({error}). The file is damaged; restore or remove the run.") from error
    if not isinstance(version, int):
        raise StoredDataError(f"{path}: no schema_version. It was not written by this harness.")
    if version > RUN_SCHEMA:
        raise StoredDataError(
            f"{path}: schema {version} is newer than this harness understands ({RUN_SCHEMA}). Upgrade the harness."
        )
    try:
        return Run.model_validate_json(raw)  # strict about half characters, which could not be written again
    except ValidationError as error:
        raise StoredDataError(f"{path}: {_first(error)}. The file is damaged or from another program.") from error


def _what_is_there(directory: Path) -> str:
    """Return what stands where a run directory should be."""
    if not directory.exists():
        return "there is no such directory"
    if not directory.is_dir():
        return "is a file"
    if (directory / CASES_FILE).exists():
        return f"{RUN_FILE} is missing; {CASES_FILE} is there: the directory is half gone"
    return f"{RUN_FILE} is missing; it is no run directory"


def stream_results(directory: Path) -> Iterator[CaseResult]:
    """Results one at a time, in the order they were written; of a case the last one holds."""
    path = directory / CASES_FILE
    for line in lines_of(path) if path.exists() else ():
        if line.result is not None:
            yield line.result


def lines_of(path: Path) -> Iterator[Line]:
    """Each line of cases.jsonl in turn, so that a large run is never in memory as a whole."""
    with path.open("rb") as stream:
        offset = 0
        for number, raw in enumerate(stream, start=1):
            if raw.strip():
                yield _line(number, offset, raw)
            offset += len(raw)


def _line(number: int, offset: int, raw: bytes) -> Line:
    try:
        return Line(number, offset, CaseResult.model_validate_json(raw))
    except ValidationError as error:
        torn = not raw.endswith(b"\n")
        what = "torn last line, written when the run was killed" if torn else _first(error)
        return Line(number, offset, None, what)


def _read_cases(path: Path) -> tuple[list[CaseResult], list[str]]:
    """Results in the order they were written, the last one of a case winning, and what was wrong."""
    if not path.exists():
        return [], [f"{path.name}: missing"]
    results: dict[str, CaseResult] = {}
    problems: list[str] = []
    for line in lines_of(path):
        if line.result is None:
            problems.append(f"{path.name}:{line.number}: {line.problem}")
        else:
            results[line.result.case.id] = line.result
    return list(results.values()), problems


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])
