"""A run condensed to columns: what history and comparison need, a few bytes per case."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Any

from harness.records import CaseResult, Environment, OutcomeKind, Role, Status
from harness.report.columns import column_of, column_text
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
VERSION = 1
"""Of the text form. Raise it with any change of the fields or their meaning: old digests are made anew."""
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
    cached: int = 0
    """References and controls that were taken from the cache."""
    computed: int = 0
    """References and controls that were computed."""

    def dump(self) -> str:
        """The digest as text, for `parse`: read instead of the run's results, which are far larger."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain["outcomes"] = plain["outcomes"].hex()
        facts, judged = asdict(self.facts), self.night
        columns = {name: column_text(plain[name]) for name in ("ratios", "shares", "seconds")}
        return json.dumps(
            {
                **plain,
                **columns,
                "version": VERSION,
                "started": self.started.isoformat(),
                "finished": self.finished.isoformat() if self.finished else None,
                "environment": self.environment.model_dump(mode="json"),
                "facts": facts,
                "night": {"counts": judged.counts, "level": judged.level, "sentence": judged.sentence},
            }
        )

    @classmethod
    def parse(cls, text: str) -> RunDigest | None:
        """The digest that `dump` wrote; None when another version wrote it and the run has to be read."""
        tree = json.loads(text)
        if tree.pop("version", None) != VERSION:
            return None
        facts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in tree["facts"].items()}
        counts = {Status(name): number for name, number in tree["night"].pop("counts").items()}
        return cls(
            **{
                **tree,
                **{name: column_of(tree[name]) for name in ("ratios", "shares", "seconds")},
                "ids": tuple(tree["ids"]),
                "outcomes": bytes.fromhex(tree["outcomes"]),
                "started": datetime.fromisoformat(tree["started"]),
                "finished": datetime.fromisoformat(tree["finished"]) if tree["finished"] else None,
                "environment": Environment.model_validate(tree["environment"]),
                "facts": Completeness(**facts),
                "night": Night(counts=counts, **tree["night"]),
            }
        )


def digest(source: ReportRun, visit: Callable[[CaseResult], None] | None = None) -> RunDigest:
    """The run in columns, from one pass over its results; `visit` sees each of them.

    Where a case has several results the last one counts; missing cases are NOTRUN.
    """
    cells: dict[str, tuple[Status, int, float, float, float]] = {}
    observed = []
    cached = computed = 0
    for result in source.results:
        observed.append((result.case.id, result.verdict.status))
        cells[result.case.id] = _cells(result)
        stored = [seen.cached for role, seen in result.observations.items() if role is not Role.CANDIDATE]
        cached += sum(stored)
        computed += len(stored) - sum(stored)
        if visit:
            visit(result)
    facts = completeness(source.run, observed, source.problems)
    absent = (Status.NOTRUN, _OUTCOME_CODE[NO_RESULT], UNDEFINED, UNDEFINED, UNDEFINED)
    cells.update(dict.fromkeys(facts.missing, absent))
    return replace(_pack(source, facts, cells), cached=cached, computed=computed)


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
