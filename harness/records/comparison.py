"""Nouns of comparison: numbers about tensor pairs. No threshold, no boolean verdict."""

from __future__ import annotations

from typing import Literal

from harness.records.base import Record


class Census(Record):
    """Values of one side that a difference cannot describe."""

    nan: int = 0
    positive_infinity: int = 0
    negative_infinity: int = 0
    saturated: int = 0
    """Values at the largest finite magnitude of the side's format."""
    zeros: int = 0
    constant: bool = False
    """All elements equal (and more than one): likely an unwritten buffer."""
    pattern: str | None = None
    """Bit pattern of the one value of a constant side, e.g. ``0xaaaaaaaa``."""
    first_nonfinite: tuple[int, ...] | None = None
    """Index of the first NaN or infinity."""


class PairNumbers(Record):
    """One side against the reference, over the elements that are finite on both sides."""

    finite_pairs: int
    """Elements that are finite on both sides: what the numbers below range over."""
    max_abs: float | None = None
    """Largest absolute difference."""
    max_abs_index: tuple[int, ...] | None = None
    mean_abs: float | None = None
    rms: float | None = None
    """Root of the mean squared difference."""
    unequal: int | None = None
    """Elements whose values differ at all; the whole comparison of integers and booleans."""
    relative_l2: float | None = None
    """``||x - reference|| / ||reference||``; None when the reference is all zero."""
    worst_vector: tuple[int, ...] | None = None
    """Leading indices of the vector (last dimension) with the largest relative L2 error."""
    worst_vector_l2: float | None = None
    """That error."""
    cosine: float | None = None
    pearson: float | None = None
    """None with zero variance on either side."""
    mismatches: int | None = None
    """Elements with ``|x - ref| > atol + rtol |ref|`` at the probe tolerance stated in `Comparison`."""
    ulp_median: float | None = None
    ulp_p99: float | None = None
    ulp_max: float | None = None
    """Distances in units in the last place of the side's format, at the reference's magnitude."""
    abs_quantiles: tuple[float, ...] = ()
    """Absolute error at the quantiles stated in `Comparison`."""
    scale: float | None = None
    offset: float | None = None
    """Least-squares ``x = scale * reference + offset``."""
    minimum_tolerance: float | None = None
    """Smallest ``t`` for which ``|x - ref| <= t + t |ref|`` holds everywhere."""
    nonfinite_mismatches: int = 0
    """Elements where the two sides disagree about being NaN, +inf, -inf or finite."""
    nonfinite_lost: int = 0
    """Of these: the reference is NaN or infinite and the side is finite (torch-spyre#1851)."""
    nonfinite_made: int = 0
    """Of these: the reference is finite and the side is NaN or infinite."""
    nonfinite_changed: int = 0
    """Of these: NaN against infinity, or infinities of opposite sign (torch-spyre#4342)."""
    nonfinite_first: tuple[int, ...] | None = None
    """Index of the first of these."""
    nan_matches: int = 0
    """Elements that are NaN on both sides: nothing can be said about them."""


class Divergence(Record):
    """One position whose top token differs from the reference's."""

    position: tuple[int, ...]
    """Index of the position: batch row and step."""
    reference_token: int
    other_token: int
    reference_margin: float
    """Reference logit of its own top token minus that of the other token (not negative)."""
    error_at_pair: float
    """Sum of the absolute logit errors at the two tokens."""
    ulp: float
    """One unit in the last place of the side's format at the top logit's magnitude."""
    control_error: float | None = None
    """RMS error of the control's logits at this position; None without a control."""


class LogitNumbers(Record):
    """One side's logits against the reference's, over positions."""

    positions: int
    undefined_positions: int = 0
    """Of these: rows with NaN or +inf on a side. They enter no number below."""
    kl_mean: float | None = None
    kl_max: float | None = None
    """KL(reference || side) in nats."""
    kl_max_position: tuple[int, ...] | None = None
    top1_agreements: int = 0
    top5_overlap: float | None = None
    """Mean share of the reference's top five found in the side's top five."""
    margin_median: float | None = None
    margin_min: float | None = None
    """Reference's margin between its first and second token."""
    divergences: tuple[Divergence, ...] = ()
    """At most 32, those with the largest margin in units of control error and ULP; in order of position."""
    divergent: int = 0
    """How many there are in all."""
    first_divergent: tuple[int, ...] | None = None
    relative_l2_by_step: tuple[float | None, ...] = ()
    """Per position, batch rows joined."""
    worst_step: int | None = None


class SamplingNumbers(Record):
    """Tokens drawn from the candidate's logits, against the probabilities of the reference's.

    At each position the tokens that are expected five times or more are a cell each, and all others are one
    cell together. G is ``2 sum(observed ln(observed / expected))`` over the cells of all positions.
    """

    positions: int
    draws: int
    """Tokens drawn at each position."""
    temperature: float
    seed: int
    g: float = 0.0
    degrees: int = 0
    """Degrees of freedom: cells less one at each position."""
    chance: float | None = None
    """Probability of a G so large if the candidate's distribution were the reference's; None without a cell."""
    level: float
    """Probability of a false alarm."""
    proven: float = 0.0
    """Smallest noncentrality (draws x chi-square distance, summed over positions) that explains this G at that
    level; zero where chance explains it."""
    control: float | None = None
    """Noncentrality of the control's distribution and of rounding its logits once; None without a control."""
    worst: tuple[int, ...] | None = None
    """Position with the largest G for its degrees of freedom."""


class OutputComparison(Record):
    """One named output: structure, candidate and control against the reference."""

    name: str
    shape: tuple[int, ...]
    """The reference's shape."""
    elements: int
    """Elements compared, padding excluded."""
    kind: Literal["float", "integer"] = "float"
    """Integers and booleans are compared exactly."""
    reference_dtype: str | None = None
    candidate_dtype: str | None = None
    """Dtypes as they came back to the host."""
    mismatch: str | None = None
    """Structural difference (missing, shape, dtype kind): nothing numeric was compared then."""
    control_mismatch: str | None = None
    """The same for the control: this output has no control."""
    copy_of: str | None = None
    """Name of the input that the candidate's output repeats bit for bit."""
    reference_census: Census = Census()
    candidate_census: Census = Census()
    control_census: Census = Census()
    candidate: PairNumbers | None = None
    control: PairNumbers | None = None
    typical_ratio: float | None = None
    """Geometric mean over vectors (last dimension) of the candidate's relative L2 error in units of the
    control's; neither counts as less than `Comparison.control_noise`."""
    worst_ratio: float | None = None
    """Largest such ratio of one vector, in units of the control's error there, in its whole row (the steps of
    one text) and the noise, added in quadrature."""
    worst_ratio_at: tuple[int, ...] | None = None
    """Leading indices of that vector."""
    candidate_logits: LogitNumbers | None = None
    control_logits: LogitNumbers | None = None
    sampling: SamplingNumbers | None = None


class Comparison(Record):
    """All outputs of a case."""

    outputs: tuple[OutputComparison, ...] = ()
    not_compared: tuple[str, ...] = ()
    """What was found in the outputs and cannot be compared, with the reason."""
    candidate_format: str = "dlfloat16"
    control_format: str = "float16"
    """Formats in which ULP and saturation are counted."""
    control_noise: float = 2.0**-10 / 12**0.5
    """Relative L2 error that two right results in the control's format have at least."""
    probe_atol: float = 1e-2
    probe_rtol: float = 1e-2
    """Tolerance at which `PairNumbers.mismatches` counts."""
    quantiles: tuple[float, ...] = (0.5, 0.9, 0.99, 0.999)

    @property
    def elements(self) -> int:
        """Elements compared in all outputs."""
        return sum(output.elements for output in self.outputs if output.candidate is not None)
