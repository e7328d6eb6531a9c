"""A run condensed to columns: what history and comparison need, a few bytes per case."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from harness.records import CaseResult, Environment, OutcomeKind, Role, Status
from harness.report.completeness import Completeness, completeness
from harness.report.inputs import ReportRun
from harness.report.night import Night, night
from harness.report.rows import NO_RESULT, error_ratio

LETTERS: Mapping[Status, str] = {
    Status.PASS: "P",
    Status.FAIL: "F",
    Status.XFAIL: "K",
    Status.XPASS: "X",
    Status.SKIP: "S",
    Status.ERROR: "E",
    Status.NOTRUN: "N",
}
"""One letter per status in packed columns; K: known failure."""
ABSENT = "-"
OUTCOMES: tuple[str, ...] = (*(kind.value for kind in OutcomeKind), NO_RESULT)
UNDEFINED = -1.0
"""Stands for None in the packed columns, whose values are never negative. NaN is NaN."""
_OUTCOME_CODE = {outcome: code for code, outcome in enumerate(OUTCOMES)}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDigest:
    """One run in columns; `ids` and the columns run parallel."""

    run_id: str
    started: datetime
    finished: datetime | None
    profile: str | None
    selection: str
    exit_status: int | None
    environment: Environment
    facts: Completeness
    night: Night
    ids: tuple[str, ...]
    statuses: str
    outcomes: bytes
    """Index into `OUTCOMES`."""
    ratios: array[float]
    shares: array[float]
    seconds: array[float]


def digest(source: ReportRun, visit: Callable[[CaseResult], None] | None = None) -> RunDigest:
    """The run in columns, from one pass over its results; `visit` sees each of them.

    Where a case has several results the last one counts; missing cases are NOTRUN.
    """
    cells: dict[str, tuple[Status, int, float, float, float]] = {}
    observed = []
    for result in source.results:
        observed.append((result.case.id, result.verdict.status))
        cells[result.case.id] = _cells(result)
        if visit:
            visit(result)
    facts = completeness(source.run, observed, source.problems)
    absent = (Status.NOTRUN, _OUTCOME_CODE[NO_RESULT], UNDEFINED, UNDEFINED, UNDEFINED)
    cells.update(dict.fromkeys(facts.missing, absent))
    return _pack(source, facts, cells)


def _pack(
    source: ReportRun, facts: Completeness, cells: Mapping[str, tuple[Status, int, float, float, float]]
) -> RunDigest:
    run = source.run
    counts = Counter(cell[0] for cell in cells.values())
    return RunDigest(
        run_id=run.run_id,
        started=run.started,
        finished=run.finished,
        profile=run.profile,
        selection=run.selection,
        exit_status=run.exit_status,
        environment=run.environment,
        facts=facts,
        night=night(run, counts, facts),
        ids=tuple(cells),
        statuses="".join(LETTERS[cell[0]] for cell in cells.values()),
        outcomes=bytes(cell[1] for cell in cells.values()),
        ratios=array("d", (cell[2] for cell in cells.values())),
        shares=array("d", (cell[3] for cell in cells.values())),
        seconds=array("d", (cell[4] for cell in cells.values())),
    )


def _cells(result: CaseResult) -> tuple[Status, int, float, float, float]:
    candidate = result.observations.get(Role.CANDIDATE)
    share = candidate.device.device_share if candidate and candidate.device else None
    ratio = error_ratio(result)
    return (
        result.verdict.status,
        _OUTCOME_CODE[result.outcome.kind.value],
        UNDEFINED if ratio is None else ratio,
        UNDEFINED if share is None else share,
        (result.finished - result.started).total_seconds(),
    )
