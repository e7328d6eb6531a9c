"""A comparison as plain text."""

from __future__ import annotations

from collections.abc import Iterator

from harness.records import Census, Comparison, LogitNumbers, OutputComparison, PairNumbers


def render_text(comparison: Comparison) -> str:
    """Return the comparison for people; mismatches are worded as torch.testing words them."""
    lines: list[str] = []
    for output in comparison.outputs:
        lines += [_title(output), *(f"  {line}" for line in _body(output, comparison))]
    lines += [f"Not compared: {entry}" for entry in comparison.not_compared]
    if not any(output.candidate for output in comparison.outputs):
        lines.append("Nothing was compared.")
    return "\n".join(lines)


def _title(output: OutputComparison) -> str:
    dtypes = f"{output.candidate_dtype} against {output.reference_dtype}"
    name = output.name if output.name.isprintable() else ascii(output.name)  # a file may name a tensor anything
    return f"{name}: shape {output.shape}, {dtypes}, {output.elements} elements compared"


def _body(output: OutputComparison, comparison: Comparison) -> Iterator[str]:
    if output.mismatch:
        yield f"Structure differs: {output.mismatch}"
    if output.candidate:
        yield from _elementwise(output.candidate, comparison, output.kind)
        yield from _sides(output)
    yield from _censuses(output)
    if output.candidate_logits:
        yield from _logits(output.candidate_logits)


def _elementwise(pair: PairNumbers, comparison: Comparison, kind: str) -> Iterator[str]:
    """Yield what torch.testing would say, whether or not it would raise."""
    if pair.nonfinite_mismatches:
        yield (
            f"Non-finite mismatches: {pair.nonfinite_mismatches}, first at index {pair.nonfinite_first} "
            f"(lost {pair.nonfinite_lost}, made {pair.nonfinite_made}, changed {pair.nonfinite_changed})"
        )
    if pair.nan_matches:
        yield f"NaN on both sides: {pair.nan_matches}"
    if not pair.finite_pairs:
        yield "No element is finite on both sides"
        return
    mismatched = pair.mismatches or 0
    share = 100 * mismatched / pair.finite_pairs
    probe = f" at atol {comparison.probe_atol:g}, rtol {comparison.probe_rtol:g}" if kind == "float" else ""
    yield f"Mismatched elements: {mismatched} / {pair.finite_pairs} ({share:.1f}%){probe}"
    yield f"Greatest absolute difference: {_number(pair.max_abs)} at index {pair.max_abs_index}"
    if kind == "float":
        yield f"Smallest atol = rtol without a mismatch: {_number(pair.minimum_tolerance)}"


def _sides(output: OutputComparison) -> Iterator[str]:
    """Yield candidate and control in one line for each metric."""
    pairs = [("candidate", output.candidate), ("control", output.control)]
    if output.kind == "integer":
        return
    metrics = (
        ("Relative L2 error", "relative_l2"),
        ("Cosine similarity", "cosine"),
        ("Pearson correlation", "pearson"),
        ("Median ULP distance", "ulp_median"),
        ("Largest ULP distance", "ulp_max"),
    )
    for title, name in metrics:
        values = [f"{_number(getattr(pair, name))} ({role})" for role, pair in pairs if pair]
        yield f"{title}: {', '.join(values)}"
    if output.typical_ratio is not None:
        yield f"Error vector by vector: typically {_number(output.typical_ratio)} times the control's"
    candidate = output.candidate
    if candidate and candidate.scale is not None:
        yield f"Best linear fit: {_number(candidate.scale)} x reference + {_number(candidate.offset)}"


def _censuses(output: OutputComparison) -> Iterator[str]:
    """Yield what is odd about the values of each side."""
    censuses = (("reference", output.reference_census), ("candidate", output.candidate_census))
    for role, census in censuses:
        oddities = list(_oddities(census))
        if oddities:
            yield f"In the {role}: {', '.join(oddities)}"
    if output.copy_of:
        yield f"The candidate repeats the input {output.copy_of} bit for bit"


def _oddities(census: Census) -> Iterator[str]:
    counted = (
        (census.nan, "NaN"),
        (census.positive_infinity, "+inf"),
        (census.negative_infinity, "-inf"),
        (census.saturated, "saturated"),
    )
    yield from (f"{count} {what}" for count, what in counted if count)
    if census.constant:
        yield f"one value throughout ({census.pattern}), likely an unwritten buffer"


def _logits(logits: LogitNumbers) -> Iterator[str]:
    yield (
        f"KL divergence: mean {_number(logits.kl_mean)}, largest {_number(logits.kl_max)} nats "
        f"at position {logits.kl_max_position}"
    )
    defined = logits.positions - logits.undefined_positions
    yield f"Top token agrees at {logits.top1_agreements} of {defined} positions"
    if logits.divergences:
        first = logits.divergences[0]
        yield (
            f"First divergence: position {first.position}, token {first.other_token} instead of "
            f"{first.reference_token}, margin {first.reference_margin:.4g}, {first.ulp:.4g} to the ULP"
        )


def _number(value: float | None) -> str:
    """Return four significant digits; more where a correlation is close to one."""
    if value is None:
        return "undefined"
    return f"{value:.8g}" if 0.99 < abs(value) < 1.01 else f"{value:.4g}"
