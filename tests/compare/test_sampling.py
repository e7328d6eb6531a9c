"""Draws against probabilities: known tails, honest draws within chance, shifted distributions proven."""

from __future__ import annotations

import math

import pytest
import torch

from harness.compare import compare_outputs
from harness.compare.sampling import LEVEL, proven, tail
from harness.records import Sampling, SamplingNumbers


def logits(positions: int = 8, vocabulary: int = 200) -> torch.Tensor:
    return 2 * torch.randn(1, positions, vocabulary, generator=torch.Generator().manual_seed(0))


def drawn(candidate: torch.Tensor, control: torch.Tensor | None = None, **settings: float) -> SamplingNumbers:
    """What is found for a candidate of the logits above."""
    reference = logits()
    outputs = compare_outputs(
        {"logits": reference},
        {"logits": candidate},
        None if control is None else {"logits": control},
        logits=["logits"],
        sampling=Sampling(**settings),
    ).outputs
    assert outputs[0].sampling is not None
    return outputs[0].sampling


@pytest.mark.parametrize(
    ("statistic", "degrees", "noncentrality", "chance"),
    [
        # Abramowitz and Stegun, table 26.8: upper quantiles of chi-square.
        (18.307, 10, 0.0, 0.05),
        (124.342, 100, 0.0, 0.05),
        (140.169, 100, 0.0, 0.005),
        # One degree: (z + 2) squared above 9, so 1 - Phi(1) + Phi(-5).
        (9.0, 1, 4.0, 0.158655540),
        # Two degrees, Marcum's Q1(a, a) = (1 + exp(-a^2) I0(a^2)) / 2 at a = 1, I0(1) = 1.26606588.
        (1.0, 2, 1.0, 0.73287980),
        (0.0, 5, 3.0, 1.0),
    ],
)
def test_tails_of_the_chi_square(statistic: float, degrees: int, noncentrality: float, chance: float) -> None:
    assert tail(statistic, degrees, noncentrality) == pytest.approx(chance, rel=3e-4)


def test_what_a_statistic_proves() -> None:
    assert proven(18.3, 10, LEVEL) == 0, "chance explains it"
    assert proven(0.0, 0, LEVEL) == 0
    bound = proven(500.0, 100, LEVEL)
    assert 0 < bound < 400
    assert tail(500.0, 100, bound) == pytest.approx(LEVEL, rel=0.02)
    assert proven(600.0, 100, LEVEL) > bound


def test_draws_from_the_reference_itself_are_within_chance() -> None:
    found = drawn(logits(), logits())
    assert (found.positions, found.draws, found.temperature, found.proven) == (8, 1024, 1.0, 0.0)
    assert found.degrees > 100
    assert found.chance is not None
    assert found.chance > 1e-3
    assert found.g == drawn(logits()).g, "the same logits give the same draws"
    assert found.g != drawn(logits(), seed=1).g


def test_the_control_sets_a_scale_without_being_drawn_from() -> None:
    near, far = (drawn(logits(), logits() * size).control for size in (1.001, 1.01))
    assert near is not None
    assert far is not None
    # The distance of p^s from p is (s - 1)^2 times the variance of the log-probability, here about 4.
    assert far == pytest.approx(8 * 1024 * 1e-4 * 4, rel=0.4)
    assert 50 < far / near < 110
    assert drawn(logits()).control is None


@pytest.mark.parametrize("shifted", [logits() * 1.15, logits().roll(1, -1), logits().clamp_max(3.0)])
def test_a_shifted_distribution_is_proven(shifted: torch.Tensor) -> None:
    found = drawn(shifted, logits() * 1.001)
    assert found.control is not None
    assert math.sqrt(found.proven / found.control) > 30
    assert found.chance is not None
    assert found.chance < LEVEL


def test_one_wrong_position_is_named() -> None:
    wrong = logits()
    wrong[0, 5] = wrong[0, 5].flip(0)
    assert drawn(wrong).worst == (0, 5)


def test_a_temperature_flattens_both_sides() -> None:
    assert drawn(logits(), temperature=4.0).proven == 0
    assert drawn(logits() * 1.15, temperature=4.0).proven < drawn(logits() * 1.15).proven


def test_more_draws_prove_more() -> None:
    few, many = (drawn(logits() * 1.1, draws=count).proven / count for count in (256, 16384))
    assert few < many


def test_positions_without_a_distribution_are_left_out() -> None:
    candidate = logits()
    candidate[0, 2, 7] = float("nan")
    assert drawn(candidate).positions == 7


def test_one_certain_token_proves_nothing() -> None:
    certain = torch.zeros(1, 3, 50)
    certain[..., 4] = 100.0
    comparison = compare_outputs({"logits": certain}, {"logits": certain}, None, logits=["logits"], sampling=Sampling())
    found = comparison.outputs[0].sampling
    assert found is not None
    assert (found.degrees, found.chance, found.proven, found.worst) == (0, None, 0.0, (0, 0))


def test_false_alarms_are_as_rare_as_they_are_said_to_be() -> None:
    """At a level of 5 % instead of 1e-6, so that there is something to count: 200 honest devices, at most 20."""
    reference = logits(4, 60)
    alarms = 0
    for seed in range(200):
        found = compare_outputs(
            {"logits": reference},
            {"logits": reference},
            None,
            logits=["logits"],
            sampling=Sampling(seed=seed, draws=256),
        ).outputs[0]
        assert found.sampling is not None
        assert found.sampling.chance is not None
        alarms += found.sampling.chance < 0.05
    assert 1 <= alarms <= 20
