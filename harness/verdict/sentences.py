"""One sentence for people about findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from harness.records import Case, Comparison, Dtype, Finding, Observation, OutputComparison, Role

RATIOS = ("error_ratio", "typical_ratio", "worst_ratio", "module_ratio")
"""Metrics in units of the control's error."""

STICK = 64
"""Elements of a 16-bit type in one 128-byte stick of device memory; other sizes are padded."""

SCALED_PEARSON = 0.999
"""Correlation above which a slope other than one explains most of an error."""


def failure(case: Case, comparison: Comparison, outside: Sequence[Finding]) -> str:
    """Return what is outside the rule: the first metric in the rule's order, where it is worst."""
    metric = outside[0].metric
    worst = max((one for one in outside if one.metric == metric), key=_excess)
    output = next(one for one in comparison.outputs if one.name == worst.output)
    hints = list(_hints(case, output))
    others = sorted({one.metric for one in outside} - {metric})
    text = describe(worst, comparison)
    if others:
        text += f"; also outside: {', '.join(others)}"
    return f"{text}; {'; '.join(hints)}" if hints else text


def _excess(finding: Finding) -> float:
    """Return how far outside its limit a finding is; undefined is furthest."""
    if finding.value is None or not math.isfinite(finding.value):
        return math.inf
    if finding.metric == "cosine":
        return finding.limit - finding.value
    return finding.value / finding.limit if finding.limit else finding.value


def describe(finding: Finding, comparison: Comparison) -> str:
    """Return metric, value, limit and place of one finding."""
    control = comparison.control_format
    value = "undefined" if finding.value is None else f"{finding.value:.3g}"
    limit = f"(limit {finding.limit:.3g})"
    worst = f", worst at {finding.where}" if finding.where else ""
    if finding.metric == "structure":
        return f"structure of {finding.output} differs: {finding.where}"
    if finding.metric == "nonfinite":
        return f"{value} non-finite values of {finding.output} differ: {finding.where}"
    if finding.metric in RATIOS:
        typically = {"error_ratio": "", "worst_ratio": "at one vector "}.get(finding.metric, "typically ")
        return f"relative L2 error of {finding.output} is {typically}{value}x the {control} control's {limit}{worst}"
    if finding.metric == "sampling_ratio":
        return (
            f"tokens drawn from {finding.output} are {value}x as far from the reference's probabilities as the "
            f"{control} control {limit}{worst}"
        )
    if finding.metric == "cosine":
        value = "undefined" if finding.value is None else f"{finding.value:.6g}"
        return f"cosine similarity of {finding.output} is {value} {limit}"
    if finding.metric == "token_disagreement":
        return f"{value} of the top tokens of {finding.output} differ beyond a near tie {limit}{worst}"
    words = {
        "unequal": "number of unequal elements",
        "zero_reference": "absolute error against an all-zero reference",
        "relative_l2": "relative L2 error",
        "vector_l2": "relative L2 error of one vector",
        "kl": "mean KL divergence",
    }
    return f"{words[finding.metric]} of {finding.output} is {value} {limit}{worst}"


def _hints(case: Case, output: OutputComparison) -> Iterator[str]:
    """Yield what the numbers of a wrong output suggest."""
    census, pair = output.candidate_census, output.candidate
    if census.constant and not output.reference_census.constant:
        yield f"one value throughout ({census.pattern}), likely an unwritten buffer"
    if output.copy_of:
        yield f"it repeats the input {output.copy_of} bit for bit"
    if census.saturated:
        yield f"{census.saturated} values are saturated"
    if pair is None:
        return
    if pair.nonfinite_mismatches and output.shape and output.shape[-1] % STICK:
        yield f"the last dimension {output.shape[-1]} is no multiple of {STICK}"
    if (pair.pearson or 0) > SCALED_PEARSON and pair.scale is not None and abs(pair.scale - 1) > 0.01:
        yield f"values look scaled by {pair.scale:.4g}"
    if case.dtype == Dtype.FLOAT32 and 2.0**-13 < (pair.relative_l2 or 0) < 2.0**-6:
        yield "an error of this size fits a lower precision mode"


def success(
    comparison: Comparison,
    found: Sequence[Finding],
    observations: Mapping[Role, Observation],
) -> str:
    """Return what was compared and how close the worst output came to its limit."""
    closest = max(found, key=_closeness, default=None)
    parts = [f"{_tensors(comparison)} tensors, {comparison.elements} elements compared"]
    if closest is not None:
        parts.insert(0, describe(closest, comparison))
    device = observations[Role.CANDIDATE].device
    if device is not None:
        parts.append(f"{device.ops_on_device} ops on the device, {device.fallbacks} on the CPU")
    parts += _remarks(comparison)
    if comparison.not_compared:
        parts.append(f"{len(comparison.not_compared)} values not compared")
    return "; ".join(parts)


def _remarks(comparison: Comparison) -> Iterator[str]:
    """Yield what a pass must not be silent about."""
    for output in comparison.outputs:
        if output.candidate and output.candidate.nan_matches:
            count = output.candidate.nan_matches
            yield f"{count} NaN in the reference and in the candidate of {output.name} prove nothing"
        if output.kind == "integer" and output.candidate_dtype != output.reference_dtype:
            yield (
                f"{output.name} came back as {output.candidate_dtype} where the reference has {output.reference_dtype}"
            )


def _closeness(finding: Finding) -> tuple[bool, float]:
    """Return how much of its limit a finding uses; ratios first, they are the rule's heart."""
    if finding.metric in RATIOS and finding.value is not None:
        return (True, finding.value / finding.limit)
    return (False, 0.0)


def _tensors(comparison: Comparison) -> int:
    return sum(output.candidate is not None for output in comparison.outputs)
