"""Numbers, tolerance and expectation to a status and one sentence: the only place that says PASS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime

from harness.records import (
    Case,
    Comparison,
    ExpectationMode,
    Finding,
    Observation,
    Outcome,
    OutcomeKind,
    Role,
    Status,
    Tolerance,
    Verdict,
)
from harness.verdict.evidence import missing_evidence
from harness.verdict.expectations import apply_expectation, set_aside
from harness.verdict.limits import DEFAULTS, limits_for
from harness.verdict.rule import findings, has_near_tie
from harness.verdict.sentences import failure, success

__all__ = ["DEFAULTS", "OUTCOME_STATUS", "judge", "limits_for"]

OUTCOME_STATUS: dict[OutcomeKind, Status] = {
    OutcomeKind.UNSUPPORTED_OP: Status.FAIL,
    OutcomeKind.COMPILE_ERROR: Status.FAIL,
    OutcomeKind.RUNTIME_ERROR: Status.FAIL,
    OutcomeKind.DEVICE_ERROR: Status.FAIL,
    OutcomeKind.HOST_OUT_OF_MEMORY: Status.FAIL,
    OutcomeKind.DEVICE_OUT_OF_MEMORY: Status.FAIL,
    OutcomeKind.TIMEOUT: Status.FAIL,
    OutcomeKind.CRASH: Status.FAIL,
    OutcomeKind.KILLED: Status.FAIL,
    OutcomeKind.INVALID_CHECKPOINT: Status.ERROR,
    OutcomeKind.INVALID_REFERENCE: Status.ERROR,
    OutcomeKind.NONDETERMINISTIC: Status.ERROR,
    OutcomeKind.NOT_EXERCISED: Status.ERROR,
    OutcomeKind.NOTHING_COMPARED: Status.ERROR,
    OutcomeKind.HARNESS_FAULT: Status.ERROR,
    OutcomeKind.UNAVAILABLE: Status.NOTRUN,
    OutcomeKind.GATED: Status.NOTRUN,
    OutcomeKind.CANCELLED: Status.NOTRUN,
    OutcomeKind.LOST_WORKER: Status.NOTRUN,
    OutcomeKind.DOES_NOT_FIT: Status.SKIP,
    OutcomeKind.UNSUPPORTED_ARCHITECTURE: Status.SKIP,
    OutcomeKind.EXCLUDED: Status.SKIP,
}
"""Status of a case that did not complete; a completed one is judged by the rule."""


def judge(
    case: Case,
    outcome: Outcome,
    comparison: Comparison | None,
    observations: Mapping[Role, Observation],
    today: date | None = None,
    mode: ExpectationMode = ExpectationMode.GATING,
) -> Verdict:
    """Return the judgement of one case; ``today`` (UTC by default) decides about expired expectations."""
    if outcome.kind is OutcomeKind.COMPLETED:
        verdict = _completed(case, comparison, observations)
    else:
        verdict = Verdict(
            status=OUTCOME_STATUS[outcome.kind],
            sentence=_ended(outcome),
            flags=tuple(_drilled(observations)),
        )
    if mode is ExpectationMode.VALIDATE:
        return set_aside(case, outcome, verdict)
    return apply_expectation(case, outcome, verdict, today or datetime.now(UTC).date())


def _ended(outcome: Outcome) -> str:
    """Return how a case ended that did not complete."""
    stage = f" at {outcome.stage}" if outcome.stage else ""
    return f"{outcome.kind}{stage}: {outcome.message}" if outcome.message else f"{outcome.kind}{stage}"


def _completed(case: Case, comparison: Comparison | None, observations: Mapping[Role, Observation]) -> Verdict:
    """Return the judgement of a completed case, expectations aside."""
    reason = missing_evidence(case, comparison, observations)
    if reason is not None or comparison is None:
        return Verdict(status=Status.ERROR, sentence=reason or "", flags=tuple(_drilled(observations)), tensors=0)
    limits = limits_for(case)
    found = findings(comparison, limits)
    outside = [finding for finding in found if not finding.within]
    passed = not outside
    return Verdict(
        status=Status.PASS if passed else Status.FAIL,
        sentence=success(comparison, found, observations) if passed else failure(case, comparison, outside),
        flags=tuple(_flags(case, comparison, observations, limits, passed)),
        findings=found,
        tolerance=limits,
        tensors=sum(output.candidate is not None for output in comparison.outputs),
        elements=comparison.elements,
    )


def _flags(
    case: Case,
    comparison: Comparison,
    observations: Mapping[Role, Observation],
    limits: Tolerance,
    passed: bool,
) -> Iterator[str]:
    """Yield what a reader has to know beside the status."""
    if passed and not _all_within(findings(comparison, DEFAULTS[case.task, case.dtype])):
        yield "relaxed"
    device = observations[Role.CANDIDATE].device
    if device is not None and device.fallbacks:
        yield "fallback"
    if has_near_tie(comparison, limits):
        yield "near_tie"
    if any(output.candidate and output.candidate.nan_matches for output in comparison.outputs):
        yield "nan_in_reference"
    if any(output.candidate and not output.control for output in comparison.outputs):
        yield "no_control"
    if observations[Role.CANDIDATE].unstable:
        yield "unstable"
    yield from _drilled(observations)


def _all_within(found: tuple[Finding, ...]) -> bool:
    return all(finding.within for finding in found)


def _drilled(observations: Mapping[Role, Observation]) -> Iterator[str]:
    if any(observation.drills for observation in observations.values()):
        yield "drilled"
