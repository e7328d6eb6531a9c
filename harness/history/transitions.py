"""What became of a case's status: one rule per pair of statuses."""

from __future__ import annotations

from collections.abc import Iterator

from harness.history.past import Direction, Past, excursion, flaky, good, same_ground, settled
from harness.history.views import TELLING, Sample
from harness.records import Change, ChangeKind, OutcomeKind, Stage, Status

STAGES = {stage: index for index, stage in enumerate(Stage)}
LOOSER_WHEN_SMALLER = frozenset({"cosine"})
DECIDED = TELLING | {Status.SKIP}
SAME_ERROR = 1.25
"""Errors within this factor of one another are taken for the same when a limit moves."""


def status_changes(past: Past) -> Iterator[Change]:
    """Yield what became of a case's status tonight."""
    now = past.samples[-1]
    yield from _skipping(past)
    if now.status not in TELLING:
        yield from _no_result(past)
        return
    if now.retried:
        kinds = ", then ".join(now.retried)
        yield past.change(len(past.samples) - 2, ChangeKind.FLAKY, "worse", f"{kinds} within one run")
    before = range(len(past.samples) - 2, -1, -1)
    last = next((at for at in before if past.samples[at].status in TELLING), None)
    if last is not None:
        relaxed = list(_relaxed(past, last))
        yield from relaxed
        yield from _judged(past, last, bool(relaxed))


def _skipping(past: Past) -> Iterator[Change]:
    before = range(len(past.samples) - 2, -1, -1)
    last = next((at for at in before if past.samples[at].status in DECIDED), None)
    if last is None:
        return
    then, now = past.samples[last], past.samples[-1]
    if then.status is not Status.SKIP and now.status is Status.SKIP:
        why = f"is skipped: {now.sentence or now.kind}"
        yield past.change(last, ChangeKind.GONE, "worse", why)
    elif then.status is Status.SKIP and now.status in TELLING:
        yield past.change(last, ChangeKind.NEW, "neutral", "runs, and was skipped before")


def _no_result(past: Past) -> Iterator[Change]:
    """Yield one change when results stop coming for reasons that are not the device's."""
    then, now = past.samples[-2], past.samples[-1]
    if now.status is Status.SKIP or (then.status, then.kind) == (now.status, now.kind):
        return
    what = f"no result: {now.kind}" + (f" ({now.sentence})" if now.sentence else "")
    direction: Direction = "worse" if now.status is Status.ERROR else "neutral"
    yield past.change(len(past.samples) - 2, ChangeKind.INFRA, direction, what)


def _relaxed(past: Past, last: int) -> Iterator[Change]:
    then, now = past.samples[last], past.samples[-1]
    looser = [
        f"{name} {old:g} -> {new:g}"
        for name, old, new in _moved_limits(then, now)
        if (new < old) == (name in LOOSER_WHEN_SMALLER)
    ]
    if now.inputs != then.inputs:
        looser.append("the inputs differ, so errors before and after do not compare")
    if now.status is Status.XFAIL and then.status is Status.FAIL and now.expected:
        looser.append(f"the failure {now.expected} is expected now ({now.expectation_at})")
    if looser:
        error = f"; raw error {_number(then.error)} -> {_number(now.error)}"
        yield past.change(last, ChangeKind.RELAXED, "neutral", "; ".join(looser) + error)


def _tighter(then: Sample, now: Sample) -> str:
    moved = [
        f"{name} {old:g} -> {new:g}"
        for name, old, new in _moved_limits(then, now)
        if (new > old) == (name in LOOSER_WHEN_SMALLER)
    ]
    return "; ".join(moved)


def _moved_limits(then: Sample, now: Sample) -> Iterator[tuple[str, float, float]]:
    """Yield limits that differ; one that is not set on either side says nothing."""
    old, new = dict(then.limits), dict(now.limits)
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            yield name, old[name], new[name]


def _judged(past: Past, last: int, relaxed: bool) -> Iterator[Change]:
    """Yield the change between the last telling status and this one."""
    then, now = past.samples[last], past.samples[-1]
    if now.status is Status.XPASS:
        if then.status is not Status.XPASS:
            line = f"passes, though {now.expected or 'a failure'} is expected"
            remedy = f"; remove the entry at {now.expectation_at}" if now.expectation_at else ""
            yield past.change(last, ChangeKind.STALE_EXPECTATION, "better", line + remedy)
        return
    was_good, is_good = good(then), good(now)
    if was_good and not is_good:
        yield _fell(past, last)
    elif is_good and not was_good:
        yield from _rose(past, last, relaxed)
    elif not is_good:
        yield from _still_failing(past, last)
    elif then.status is Status.XPASS and now.status is Status.XFAIL:
        line = f"passed though known to fail, and fails again: {failure(now)}"
        yield past.change(last, ChangeKind.FLAKY, "worse", line)
    elif then.status is Status.PASS and now.status is Status.XFAIL:
        yield past.change(last, ChangeKind.REGRESSED, "worse", f"passed, and now fails: {failure(now)}")
    elif then.status is Status.XFAIL and now.status is Status.PASS:
        yield past.change(last, ChangeKind.FIXED, "better", f"passes; it was known to fail: {failure(then)}")


def _fell(past: Past, last: int) -> Change:
    now = past.samples[-1]
    if flaky(past):
        line = f"fails again ({failure(now)}), as it does now and then while nothing recorded differs"
        return past.change(last, ChangeKind.FLAKY, "worse", line)
    then = past.samples[last]
    tighter = _tighter(then, now)
    if tighter and then.error and now.error and now.error < SAME_ERROR * then.error:
        line = f"fails under a tighter limit ({tighter}); raw error {_number(then.error)} -> {_number(now.error)}"
        return past.change(last, ChangeKind.TIGHTENED, "neutral", line)
    if then.status is Status.XFAIL and then.kind is now.kind:
        line = f"fails as before ({failure(now)}) and is no longer expected to"
    elif then.status is Status.XFAIL:
        line = f"was known to fail with {then.expected or then.kind}, and fails with {failure(now)}"
    else:
        line = f"passed, and now fails: {failure(now)}"
        if same_ground(past, last, len(past.samples) - 1):
            line += "; nothing recorded differs, so run it again: it is flaky, or something unrecorded changed"
    return past.change(last, ChangeKind.REGRESSED, "worse", line)


def _rose(past: Past, last: int, relaxed: bool) -> Iterator[Change]:
    then, now = past.samples[last], past.samples[-1]
    if now.status is Status.XFAIL:
        return  # an expectation was written for what failed before: that is `relaxed`
    if relaxed and not (then.error and now.error and SAME_ERROR * now.error < then.error):
        return  # the limit moved, not the device
    if excursion(past, last) or flaky(past):
        line = f"passes again after {failure(then)}, while nothing recorded differs"
        yield past.change(last, ChangeKind.FLAKY, "worse", line)
    else:
        yield past.change(last, ChangeKind.FIXED, "better", f"passes; it failed with {failure(then)}")


def _still_failing(past: Past, last: int) -> Iterator[Change]:
    then, now = past.samples[last], past.samples[-1]
    if then.kind is not now.kind:
        if _reached(now) > _reached(then):
            line = f"still fails, and gets further: {failure(then)} before, {failure(now)} now"
            yield past.change(last, ChangeKind.DRIFTED, "better", line)
        else:
            line = f"fails in another way: {failure(then)} before, {failure(now)} now"
            yield past.change(last, ChangeKind.REGRESSED, "worse", line)
    elif settled(past):
        line = f"was flaky and fails in each run now: {failure(now)}"
        yield past.change(last, ChangeKind.REGRESSED, "worse", line)


def _reached(sample: Sample) -> int:
    return STAGES[sample.stage] if sample.stage else 0


def failure(sample: Sample) -> str:
    """Return the kind of failure in the manifest's words."""
    return "outside_rule" if sample.kind is OutcomeKind.COMPLETED else str(sample.kind)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
