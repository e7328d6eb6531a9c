"""Op variants of many cases, each once, and how many models each op blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from harness.records import CaseResult, OpState, OpUse, Record, Role

ORDER = (OpState.SPYRE_ENABLED, OpState.CPU_FALLBACK, OpState.NOT_IMPLEMENTED, OpState.SPYRE_FAILED)
"""States, the gravest last: a wrong result is worse than none."""


class OpReport(Record):
    """What all models together say about one op."""

    op: str
    """Overload name; in-place forms count as the functional op."""
    state: OpState
    """The gravest among its variants."""
    passing: tuple[OpUse, ...] = ()
    """Variants that run on the device and were not wrong alone; counts are summed over models."""
    failing: tuple[OpUse, ...] = ()
    """The others, by state."""
    models: tuple[str, ...] = ()
    """Models that run the op."""
    blocked: tuple[str, ...] = ()
    """Models in which a variant of it is wrong or not implemented."""
    checked: int = 0
    """Variants that were run alone."""


def summarize(results: Iterable[CaseResult]) -> tuple[OpReport, ...]:
    """Return the ops of all candidates, those that block most models first.

    A variant that several models share is kept once, in its gravest state.
    """
    variants: dict[str, dict[object, OpUse]] = defaultdict(dict)
    models: dict[str, set[str]] = defaultdict(set)
    blocked: dict[str, set[str]] = defaultdict(set)
    for result in results:
        candidate = result.observations.get(Role.CANDIDATE)
        for use in candidate.device.ops if candidate and candidate.device else ():
            op = use.op.replace("_.", ".", 1)
            known = variants[op].get(use.operands)
            variants[op][use.operands] = use if known is None else _joined(known, use)
            models[op].add(result.case.model)
            if use.state in (OpState.SPYRE_FAILED, OpState.NOT_IMPLEMENTED):
                blocked[op].add(result.case.model)
    reports = [_report(op, tuple(variants[op].values()), models[op], blocked[op]) for op in variants]
    return tuple(sorted(reports, key=lambda one: (-len(one.blocked), -ORDER.index(one.state), one.op)))


def _report(op: str, uses: tuple[OpUse, ...], models: set[str], blocked: set[str]) -> OpReport:
    failing = tuple(use for use in uses if use.state is not OpState.SPYRE_ENABLED)
    return OpReport(
        op=op,
        state=max((use.state for use in uses), key=ORDER.index),
        passing=tuple(use for use in uses if use.state is OpState.SPYRE_ENABLED),
        failing=tuple(sorted(failing, key=lambda use: -ORDER.index(use.state))),
        models=tuple(sorted(models)),
        blocked=tuple(sorted(blocked)),
        checked=sum(use.checked for use in uses),
    )


def _joined(one: OpUse, other: OpUse) -> OpUse:
    """One variant seen in two cases."""
    graver = max(one, other, key=lambda use: (ORDER.index(use.state), use.checked))
    return graver.model_copy(update={"count": one.count + other.count, "checked": one.checked or other.checked})


def render(reports: tuple[OpReport, ...]) -> str:
    """A table for people: op, state, variants right and not, models blocked."""
    lines = [f"{'op':<66}{'state':<18}{'right':>6}{'other':>6}{'alone':>6}{'models':>8}{'blocked':>9}"]
    for one in reports:
        lines.append(
            f"{one.op:<66}{one.state:<18}{len(one.passing):>6}{len(one.failing):>6}{one.checked:>6}"
            f"{len(one.models):>8}{len(one.blocked):>9}"
        )
    return "\n".join(lines)
