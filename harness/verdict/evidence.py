"""Whether a comparison proves anything: no vacuous pass."""

from __future__ import annotations

from collections.abc import Mapping

from harness.records import Case, Check, Comparison, Observation, Role

HOST = "cpu"
"""The one target that needs no device."""


def missing_evidence(case: Case, comparison: Comparison | None, observations: Mapping[Role, Observation]) -> str | None:
    """Return why the case proves nothing, in one sentence; None when it proves something."""
    return (
        _observed(observations)
        or _same_weights(observations)
        or _exercised(case, observations)
        or _compared(comparison)
        or _drawn(case, comparison)
    )


def _observed(observations: Mapping[Role, Observation]) -> str | None:
    for role in (Role.REFERENCE, Role.CANDIDATE):
        if role not in observations:
            return f"nothing_compared: there is no observation of the {role}"
    return None


def _same_weights(observations: Mapping[Role, Observation]) -> str | None:
    """Both sides must have run the same weights (vllm-project/vllm#35481)."""
    digests = {role: observation.weights_digest for role, observation in observations.items()}
    if len(set(digests.values())) <= 1:
        return None
    named = ", ".join(f"{role} {digest[:12] or 'none'}" for role, digest in sorted(digests.items()))
    return f"invalid_reference: the weights differ ({named}); load all sides from one checkpoint"


def _exercised(case: Case, observations: Mapping[Role, Observation]) -> str | None:
    """Both sides may have run on the CPU (torch-spyre#3894)."""
    if case.target == HOST:
        return None
    device = observations[Role.CANDIDATE].device
    if device is None:
        return f"not_exercised: no device use was recorded for target {case.target}"
    if device.ops_on_device == 0:
        return f"not_exercised: no op ran on the device, {device.fallbacks} ran on the CPU"
    return None


def _compared(comparison: Comparison | None) -> str | None:
    """Nothing compared is no pass; nor is an output without one pair of numbers."""
    if comparison is None:
        return "nothing_compared: there is no comparison"
    if any(output.mismatch for output in comparison.outputs):
        return None
    for output in comparison.outputs:
        pair = output.candidate
        if pair and not pair.finite_pairs and not pair.nonfinite_mismatches:
            return f"nothing_compared: {output.name} has no element that is finite on both sides"
    if not comparison.elements:
        rest = f"; not compared: {', '.join(comparison.not_compared)}" if comparison.not_compared else ""
        return f"nothing_compared: no element of any output could be compared{rest}"
    return None


def _drawn(case: Case, comparison: Comparison | None) -> str | None:
    """A check by draws has to have drawn something that could have come out otherwise."""
    if case.check is not Check.SAMPLING or comparison is None:
        return None
    drawn = [output for output in comparison.outputs if output.sampling and output.sampling.degrees]
    if drawn or any(output.mismatch for output in comparison.outputs):
        return None
    return "nothing_compared: no position has two tokens that are drawn often; raise inputs.sampling.draws"
