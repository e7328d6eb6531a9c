"""Whether a run holds what it planned. A report of an incomplete run says so and is no success."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from harness.records import Run, Status


@dataclass(frozen=True, kw_only=True, slots=True)
class Completeness:
    """Plan against results, and the run's own totals against a recount."""

    planned: int
    observed: int
    """Planned cases with a result."""
    missing: tuple[str, ...]
    unplanned: tuple[str, ...]
    """Results whose case the plan does not hold."""
    repeated: tuple[str, ...]
    """Cases with more than one result."""
    finished: bool
    miscounted: tuple[str, ...]
    """One phrase for each status whose total in run.json differs from the recount."""
    damage: tuple[str, ...] = ()
    """What the reader of the run directory found damaged, a sentence each."""

    @property
    def empty(self) -> bool:
        """Nothing was planned and nothing observed."""
        return not self.planned and not self.observed and not self.unplanned

    @property
    def complete(self) -> bool:
        """Each planned case has exactly one result, nothing else has one, and the totals agree."""
        return not self.problems

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, a sentence each; empty for a complete run."""
        found = []
        if self.empty:
            found.append("The run planned no case.")
        if not self.finished:
            found.append("The run has not finished.")
        if self.missing:
            found.append(f"{len(self.missing)} of {self.planned} planned cases have no result: {_some(self.missing)}.")
        if self.unplanned:
            found.append(f"{len(self.unplanned)} results belong to no planned case: {_some(self.unplanned)}.")
        if self.repeated:
            found.append(f"{len(self.repeated)} cases have more than one result: {_some(self.repeated)}.")
        if self.miscounted:
            found.append(f"The run's totals differ from its results: {', '.join(self.miscounted)}.")
        return (*found, *self.damage)


def completeness(run: Run, observed: Iterable[tuple[str, Status]], damage: tuple[str, ...] = ()) -> Completeness:
    """Compare the plan with the (case id, status) pairs of all results, one per line of cases.jsonl."""
    planned = {case.id for case in run.plan}
    pairs = list(observed)
    times = Counter(case_id for case_id, _ in pairs)
    return Completeness(
        planned=len(planned),
        observed=len(planned & times.keys()),
        missing=tuple(case.id for case in run.plan if case.id not in times),
        unplanned=tuple(case_id for case_id in times if case_id not in planned),
        repeated=tuple(case_id for case_id, count in times.items() if count > 1),
        finished=run.finished is not None,
        miscounted=_miscounted(run, Counter(status for _, status in pairs), len(planned - times.keys())),
        damage=damage,
    )


def _miscounted(run: Run, recount: Counter[Status], missing: int) -> tuple[str, ...]:
    """A run that is going on has no totals yet. Its store may count missing cases as NOTRUN or not at all."""
    if run.finished is None:
        return ()
    phrases = []
    for status in Status:
        stated, counted = run.totals.get(status, 0), recount[status]
        allowed = {counted, counted + missing} if status is Status.NOTRUN else {counted}
        if stated not in allowed:
            phrases.append(f"{status} {stated} stated, {counted} counted")
    return tuple(phrases)


def _some(ids: tuple[str, ...], limit: int = 3) -> str:
    more = f" and {len(ids) - limit} more" if len(ids) > limit else ""
    return ", ".join(ids[:limit]) + more
