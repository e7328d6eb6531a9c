"""What is measured against which limit: one comparison in, findings out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from harness.records import (
    Comparison,
    Divergence,
    Finding,
    LogitNumbers,
    OutputComparison,
    PairNumbers,
    SamplingNumbers,
    Tolerance,
)
from harness.verdict.limits import MODULE, MODULE_SPREAD, SPREAD, TIE_ULPS

ORDER = (
    "structure",
    "nonfinite",
    "unequal",
    "zero_reference",
    "error_ratio",
    "typical_ratio",
    "worst_ratio",
    "module_ratio",
    "sampling_ratio",
    "relative_l2",
    "vector_l2",
    "cosine",
    "kl",
    "token_disagreement",
)
"""The rule's order: the sentence names the first of these that is outside its limit."""


@dataclass(frozen=True)
class Limits:
    """A limit for every metric."""

    error_ratio: float
    typical_ratio: float
    worst_ratio: float
    module_ratio: float
    relative_l2: float
    vector_l2: float
    cosine: float
    kl: float
    token_disagreement: float

    @classmethod
    def of(cls, tolerance: Tolerance) -> Limits:
        """Return the limits of a tolerance in which all are set."""
        return cls(**tolerance.model_dump(exclude={"reason"}))


def findings(comparison: Comparison, tolerance: Tolerance) -> tuple[Finding, ...]:
    """Return every limit that applies to a comparison with what was measured, in the rule's order."""
    limits = Limits.of(tolerance)
    noise = comparison.control_noise
    found = [finding for output in comparison.outputs for finding in _output(output, limits, noise)]
    return tuple(sorted(found, key=lambda finding: ORDER.index(finding.metric)))


def _output(output: OutputComparison, limits: Limits, noise: float) -> Iterator[Finding]:
    """Yield the findings of one output."""
    if output.mismatch:
        yield _broken("structure", output, None, output.mismatch)
        return
    pair = output.candidate
    if pair is None:
        return
    if pair.nonfinite_mismatches:
        yield _broken("nonfinite", output, pair.nonfinite_mismatches, _nonfinite(pair))
    if not pair.finite_pairs:
        return
    if output.kind == "integer":
        yield _at_most("unequal", output, pair.unequal, 0, f"index {pair.max_abs_index}")
    elif pair.relative_l2 is None:
        yield from _zero_reference(output, pair)
    else:
        yield from _errors(output, pair, limits, noise)


def _nonfinite(pair: PairNumbers) -> str:
    """Return which classes of disagreement there are and where the first is."""
    classes = (
        (pair.nonfinite_made, "made by the device"),
        (pair.nonfinite_lost, "lost on the device"),
        (pair.nonfinite_changed, "of another kind"),
    )
    named = ", ".join(f"{count} {what}" for count, what in classes if count)
    return f"{named}, first at index {pair.nonfinite_first}"


def _zero_reference(output: OutputComparison, pair: PairNumbers) -> Iterator[Finding]:
    """Yield the finding of an all-zero reference, where no relative error exists: only zero will do."""
    yield _at_most("zero_reference", output, pair.max_abs, 0, f"index {pair.max_abs_index}")


def _errors(output: OutputComparison, pair: PairNumbers, limits: Limits, noise: float) -> Iterator[Finding]:
    """Yield the findings of a floating point output with a relative error."""
    where = _worst(output, pair)
    if output.control and output.name.startswith(MODULE):
        limit = widening(output.shape, MODULE_SPREAD) * limits.module_ratio
        yield _at_most("module_ratio", output, output.typical_ratio, limit, where)
        return
    wide = widening(output.shape)
    if output.control:
        ratio = error_ratio(pair.relative_l2, output.control.relative_l2, noise)
        yield _at_most("error_ratio", output, ratio, wide * limits.error_ratio, where)
        yield _at_most("typical_ratio", output, output.typical_ratio, wide * limits.typical_ratio, where)
        yield _at_most("worst_ratio", output, output.worst_ratio, limits.worst_ratio, f"vector {output.worst_ratio_at}")
    yield _at_most("relative_l2", output, pair.relative_l2, limits.relative_l2, where)
    yield _at_most("vector_l2", output, pair.worst_vector_l2, limits.vector_l2, where)
    yield _at_least("cosine", output, pair.cosine, limits.cosine)
    if output.candidate_logits:
        yield from _logits(output, output.candidate_logits, limits)
    if output.sampling:
        yield from _sampling(output, output.sampling, wide * limits.error_ratio)


def _sampling(output: OutputComparison, sampling: SamplingNumbers, limit: float) -> Iterator[Finding]:
    """Yield how far the draws prove the candidate's distribution to be from the reference's, in the control's units.

    A noncentrality grows with the square of the logits' error, so its root has the limit of an error.
    """
    if sampling.degrees and sampling.control:
        ratio = math.sqrt(sampling.proven / sampling.control)
        yield _at_most("sampling_ratio", output, ratio, limit, f"position {sampling.worst}")


def _worst(output: OutputComparison, pair: PairNumbers) -> str:
    """Return where an output is worst: the step of logits, the vector otherwise."""
    if output.candidate_logits and output.candidate_logits.worst_step is not None:
        return f"step {output.candidate_logits.worst_step}"
    return f"vector {pair.worst_vector}" if pair.worst_vector else f"index {pair.max_abs_index}"


def _logits(output: OutputComparison, logits: LogitNumbers, limits: Limits) -> Iterator[Finding]:
    """Yield the findings of one side's distributions."""
    if logits.positions == logits.undefined_positions:
        return
    yield _at_most("kl", output, logits.kl_mean, limits.kl, f"position {logits.kl_max_position}")
    clear = clear_disagreements(logits, limits)
    defined = logits.positions - logits.undefined_positions
    gravest = max(logits.divergences, key=lambda one: one.reference_margin, default=None)
    where = f"position {gravest.position}" if gravest else ""
    yield _at_most("token_disagreement", output, clear / defined, limits.token_disagreement, where)


def widening(shape: tuple[int, ...], spread: float = SPREAD) -> float:
    """Return how much wider a ratio's limit is for few steps: a single ratio is as much luck as error.

    Steps are the last dimension but one, where a batch stands before it: a batch is judged like its parts.
    Outputs without steps have limits of their own task.
    """
    return math.exp(spread / math.sqrt(shape[-2])) if len(shape) > 2 else 1.0


def error_ratio(candidate: float | None, control: float | None, floor: float) -> float | None:
    """Return the candidate's error in units of the control's and the format's, added in quadrature.

    Squares add over the parts of an output, so an output above a limit has a part above it.
    """
    if candidate is None or control is None:
        return None
    return candidate / math.hypot(control, floor)


def near_tie(divergence: Divergence, limits: Limits) -> bool:
    """Tell whether an error that the rule allows can swap two tokens with this margin.

    A device at the limit errs by ``error_ratio`` times the control's error at this position in each of
    two logits. The candidate's own error plays no part: a larger error must not excuse itself.
    """
    allowed = math.sqrt(2) * limits.error_ratio * (divergence.control_error or 0.0)
    return divergence.reference_margin <= allowed + TIE_ULPS * divergence.ulp


def clear_disagreements(logits: LogitNumbers, limits: Limits) -> int:
    """Return the number of positions whose top token differs and is no near tie.

    Only the gravest are kept; if one of these is a near tie, so are those that were not kept.
    """
    ties = sum(near_tie(divergence, limits) for divergence in logits.divergences)
    clear = len(logits.divergences) - ties
    return clear if ties else logits.divergent


def has_near_tie(comparison: Comparison, tolerance: Tolerance) -> bool:
    """Tell whether some top token differs within a near tie."""
    limits = Limits.of(tolerance)
    logits = [output.candidate_logits for output in comparison.outputs if output.candidate_logits]
    return any(near_tie(divergence, limits) for one in logits for divergence in one.divergences)


def _broken(metric: str, output: OutputComparison, value: float | None, where: str) -> Finding:
    """Return a finding that no limit can excuse."""
    return Finding(metric=metric, output=output.name, value=value, limit=0, within=False, where=where)


def _at_most(metric: str, output: OutputComparison, value: float | None, limit: float, where: str = "") -> Finding:
    """Return a finding that is within if the value is defined and not above the limit."""
    within = value is not None and value <= limit
    return Finding(metric=metric, output=output.name, value=value, limit=limit, within=within, where=where)


def _at_least(metric: str, output: OutputComparison, value: float | None, limit: float) -> Finding:
    """Return a finding that is within if the value is defined and not below the limit."""
    within = value is not None and value >= limit
    return Finding(metric=metric, output=output.name, value=value, limit=limit, within=within)
