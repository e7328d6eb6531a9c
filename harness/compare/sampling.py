"""Goodness of fit: tokens drawn from one side's logits against another's probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from harness.compare.vectors import Vectors
from harness.records import Sampling, SamplingNumbers

EXPECTED = 5.0
"""Draws that a cell is expected to have at least (Cochran, 1954): the rest are pooled."""

LEVEL = 1e-6
"""Probability of a false alarm per output, whatever the candidate's distribution within the rule."""


def compare_sampling(
    reference: torch.Tensor,
    candidate: torch.Tensor,
    control: torch.Tensor | None,
    sampling: Sampling,
    vectors: Vectors,
    noise: float,
) -> SamplingNumbers:
    """Return how well draws from the candidate's logits ``[..., vocabulary]`` fit the reference's probabilities.

    ``vectors`` says which positions count, ``noise`` is the relative error of rounding logits once. Positions
    where a side has no distribution are left out. The same logits give the same draws.
    """
    generator = torch.Generator().manual_seed(sampling.seed)
    width = reference.shape[-1]
    sides = [None if side is None else side.reshape(-1, width) for side in (reference, candidate, control)]
    fit = _Fit(sampling.draws)
    for row in vectors.rows.tolist():
        logits = [None if side is None else side[row].to(torch.float64) / sampling.temperature for side in sides]
        truth, drawn, other = logits
        assert truth is not None
        assert drawn is not None
        if _is_distribution(truth) and _is_distribution(drawn):
            tokens = torch.multinomial(drawn.softmax(-1), sampling.draws, replacement=True, generator=generator)
            fit.add(row, truth, tokens, other, noise)
    position = None if fit.worst is None else np.unravel_index(fit.worst, vectors.leading) if vectors.leading else ()
    return SamplingNumbers(
        positions=fit.positions,
        draws=sampling.draws,
        temperature=sampling.temperature,
        seed=sampling.seed,
        g=fit.g,
        degrees=fit.degrees,
        chance=tail(fit.g, fit.degrees, 0.0) if fit.degrees else None,
        level=LEVEL,
        proven=proven(fit.g, fit.degrees, LEVEL),
        control=None if control is None else fit.control,
        worst=None if position is None else tuple(int(part) for part in position),
    )


def _is_distribution(logits: torch.Tensor) -> bool:
    return bool(torch.isfinite(logits.amax()) and not torch.isnan(logits).any())


@dataclass
class _Fit:
    """What positions add up to."""

    draws: int
    positions: int = 0
    g: float = 0.0
    degrees: int = 0
    control: float = 0.0
    worst: int | None = None
    _worst_excess: float = field(default=-math.inf)

    def add(
        self, row: int, truth: torch.Tensor, tokens: torch.Tensor, control: torch.Tensor | None, noise: float
    ) -> None:
        """Add the draws at one position."""
        cells = _Cells(truth.softmax(-1), self.draws)
        counts = torch.bincount(tokens, minlength=len(truth)).to(torch.float64)
        g = cells.g(counts)
        degrees = len(cells.expected) - 1
        self.positions += 1
        self.g += g
        self.degrees += degrees
        excess = (g - degrees) / math.sqrt(max(1, degrees))
        if excess > self._worst_excess:
            self._worst_excess, self.worst = excess, row
        if control is not None and _is_distribution(control):
            rounding = noise * float(truth[truth.isfinite()].square().mean().sqrt())
            self.control += cells.noncentrality(control.softmax(-1)) + self.draws * rounding**2


class _Cells:
    """One position's probabilities in cells that are expected often enough, the rest in one."""

    def __init__(self, probabilities: torch.Tensor, draws: int) -> None:
        self._draws = draws
        order = probabilities.argsort(descending=True)
        often = int((probabilities[order] * draws >= EXPECTED).sum())
        rest = float(1 - probabilities[order[:often]].sum()) * draws
        # The pooled rest joins the rarest cell where it is too small to stand alone.
        self._own = order[:often] if rest >= EXPECTED else order[: max(0, often - 1)]
        self.expected = self._pooled(probabilities * draws)

    def _pooled(self, values: torch.Tensor) -> torch.Tensor:
        own = values[self._own]
        return torch.cat([own, (values.sum() - own.sum()).clamp_min(0)[None]])

    def g(self, counts: torch.Tensor) -> float:
        """The statistic of the likelihood ratio."""
        return float(2 * torch.xlogy(observed := self._pooled(counts), observed / self.expected).sum())

    def noncentrality(self, probabilities: torch.Tensor) -> float:
        """What another distribution adds to the statistic's expectation."""
        return float(((self._pooled(probabilities * self._draws) - self.expected).square() / self.expected).sum())


def tail(statistic: float, degrees: int, noncentrality: float) -> float:
    """Return the probability of a noncentral chi-square above ``statistic``: chi-squares weighted by Poisson."""
    mean = noncentrality / 2
    spread = 12 * math.sqrt(mean) + 12
    number = torch.arange(max(0, math.floor(mean - spread)), math.ceil(mean + spread) + 1, dtype=torch.float64)
    weights = (torch.xlogy(number, torch.tensor(mean)) - mean - torch.lgamma(number + 1)).exp()
    tails = torch.special.gammaincc(degrees / 2 + number, torch.full_like(number, statistic / 2))
    return float((weights * tails).sum())


def proven(statistic: float, degrees: int, level: float) -> float:
    """Return the smallest noncentrality whose chance of so large a statistic is at least ``level``; else zero."""
    if not degrees or tail(statistic, degrees, 0.0) >= level:
        return 0.0
    low, high = 0.0, max(1.0, statistic)
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if tail(statistic, degrees, middle) >= level else (middle, high)
    return low
