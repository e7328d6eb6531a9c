"""What became of each case between earlier runs and this one. Pure functions over `RunView`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Protocol, TypeVar

from harness.history.past import Past, past
from harness.history.steps import MINIMUM, Detector, Step, center, pooled_noise
from harness.history.transitions import status_changes
from harness.history.views import GOOD, RunView, Sample, gating
from harness.records import Change, ChangeKind, Status

DEPTH = 60
"""Runs that are looked back at."""
MUCH_WORSE = math.log(2.0)
"""A known failure whose error doubles is no longer the failure that was known."""
ERROR_STEPS = Detector(floor=0.005, threshold=5.5, sudden=10.0)
"""Errors of a deterministic device repeat to the bit, so one value far off is believed."""
TIME_STEPS = Detector(floor=0.03, threshold=4.2)
"""Times of one run can be disturbed by anything; two runs are asked for."""
MEASURES: tuple[tuple[str, Callable[[Sample], float | None], Detector], ...] = (
    ("relative_l2", attrgetter("error"), ERROR_STEPS),
    ("run_seconds", attrgetter("seconds"), TIME_STEPS),
)


def changes(previous: Sequence[RunView], current: RunView) -> tuple[Change, ...]:
    """Return what changed in ``current`` against the history before it, worse first, then by case.

    The order of ``previous`` does not matter: runs count by their start, and those of another lane (host
    architecture, kind of device) or after ``current`` do not count. Without a past there is no change.
    """
    return _compare(earlier(previous, current), current)


class Dated(Protocol):
    """A run as far as its place in a history goes."""

    @property
    def run_id(self) -> str: ...
    @property
    def started(self) -> datetime: ...
    @property
    def lane(self) -> str: ...


One = TypeVar("One", bound=Dated)


def earlier(runs: Sequence[One], current: Dated) -> list[One]:
    """Return the runs that ``current`` is held against, oldest first; `changes` looks at these alone."""
    before = [run for run in runs if run.lane == current.lane and _order(run) < _order(current)]
    return sorted({run.run_id: run for run in before}.values(), key=_order)[-DEPTH:]


def diff(before: RunView, after: RunView) -> tuple[Change, ...]:
    """Return what differs between two runs, whatever their lanes, dates and selections.

    Where one of them set expectations aside, both are read in the light of their expectations.
    """
    if before.expectations is not after.expectations:
        before, after = gating(before), gating(after)
    return _compare([before], after)


def _order(run: Dated) -> tuple[datetime, str]:
    return (run.started, run.run_id)


def _compare(before: Sequence[RunView], current: RunView) -> tuple[Change, ...]:
    found = list(_incomplete(current, before))
    if before:
        found += _coverage(before, current)
        pasts = {name: past(name, before, current) for name in current.samples}
        known = {name: past for name, past in pasts.items() if len(past.samples) > 1}
        for one in known.values():
            found += status_changes(one)
        found += _steps(known, current)
    order = {"worse": 0, "neutral": 1, "better": 2}
    return tuple(sorted(found, key=lambda c: (order[c.direction], c.kind, c.case, c.metric or "")))


def _incomplete(current: RunView, before: Sequence[RunView]) -> Iterator[Change]:
    for name in current.missing:
        last = next((run.samples[name] for run in reversed(before) if name in run.samples), None)
        yield Change(
            case=name,
            kind=ChangeKind.INCOMPLETE,
            direction="worse",
            run=current.run_id,
            since=current.run_id,
            status_before=last.status if last else None,
            sentence="planned, and the run ended without a result",
        )


def _coverage(before: Sequence[RunView], current: RunView) -> Iterator[Change]:
    """Yield cases that appeared, and cases that the last comparable run had and this one does not plan."""
    whole = [run for run in before if not run.partial and run.profile == current.profile]
    seen = {name: run for run in before for name in run.samples}
    for name in sorted(current.samples.keys() - seen.keys()):
        yield _coverage_change(current, name, ChangeKind.NEW, None, "has no earlier result")
    if current.partial or not whole:
        return
    last = whole[-1]
    for name in sorted(last.planned - current.planned):
        yield _coverage_change(current, name, ChangeKind.GONE, seen.get(name, last), "is no longer planned")
    for name in sorted((current.samples.keys() & seen.keys()) - last.planned):
        yield _coverage_change(current, name, ChangeKind.NEW, seen[name], "is planned again")


def _coverage_change(current: RunView, name: str, kind: ChangeKind, last: RunView | None, what: str) -> Change:
    now = current.samples.get(name)
    earlier = last.samples.get(name) if last else None
    return Change(
        case=name,
        kind=kind,
        direction="worse" if kind is ChangeKind.GONE else "neutral",
        run=current.run_id,
        since=current.run_id,
        before=last.run_id if last else None,
        status_before=earlier.status if earlier else None,
        status=now.status if now else None,
        sentence=what,
    )


def _steps(pasts: Mapping[str, Past], current: RunView) -> Iterator[Change]:
    """Yield steps in raw error and in time of cases whose status stayed."""
    for metric, read, detector in MEASURES:
        found = {name: series for name, past in pasts.items() if (series := _series(past, read))}
        noise = pooled_noise([values for _, values in found.values()], detector.floor)
        for name, (positions, values) in found.items():
            step = detector.at_end(values, noise)
            if step is None and metric == "relative_l2" and current.samples[name].status is Status.XFAIL:
                step = _much_worse(values)
            if step is not None:
                yield _step_change(pasts[name], positions, step, metric)


def _much_worse(values: Sequence[float]) -> Step | None:
    """Return the jump of a known failure that is too young to have a level, above all it has shown before."""
    if not 1 < len(values) <= MINIMUM or values[-1] - max(values[:-1]) <= MUCH_WORSE:
        return None
    return Step(len(values) - 1, center(values[:-1]), values[-1])


def _series(past: Past, read: Callable[[Sample], float | None]) -> tuple[list[int], list[float]] | None:
    """Return positions and logarithms of a measured value, as far back as they compare with tonight's.

    None without a value tonight, and when the last values are equal to the bit: there is no step then.
    """
    samples, now = past.samples, past.samples[-1]
    status, value = now.status, read(now)
    if status not in GOOD or not _positive(value) or all(read(one) == value for one in samples[-4:]):
        return None
    begin = max((at + 1 for at, one in enumerate(samples) if one.inputs != now.inputs), default=0)
    raw = [(at, read(samples[at])) for at in range(begin, len(samples)) if samples[at].status is status]
    kept = [(at, number) for at, number in raw if number is not None and 0 < number < math.inf]
    return [at for at, _ in kept], [math.log(number) for _, number in kept]


def _positive(value: float | None) -> bool:
    return value is not None and 0 < value < math.inf


def _step_change(past: Past, positions: Sequence[int], step: Step, metric: str) -> Change:
    now, start = past.samples[-1], positions[step.start]
    worse = step.after > step.before
    before, after = math.exp(step.before), math.exp(step.after)
    known_failure = metric == "relative_l2" and now.status is Status.XFAIL
    regressed = known_failure and step.after - step.before > MUCH_WORSE
    what = "error" if metric == "relative_l2" else "time"
    line = f"{what} went from {before:.3g} to {after:.3g} ({after / before:.2f} times) inside {now.status}"
    change = past.change(
        positions[step.start - 1],
        ChangeKind.REGRESSED if regressed else ChangeKind.DRIFTED,
        "worse" if worse else "better",
        line,
    )
    return change.model_copy(
        update={
            "since": past.runs[start].run_id,
            "metric": metric,
            "value_before": before,
            "value": after,
        }
    )
