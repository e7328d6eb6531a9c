"""Distributions per position: KL, tokens, margins, steps."""

from __future__ import annotations

import math

import pytest
import torch

from harness.compare import compare_outputs

INF = float("inf")


def compare(reference, candidate, control=None, **options):
    (output,) = compare_outputs(
        {"y": reference},
        {"y": candidate},
        None if control is None else {"y": control},
        logits=["y"],
        **options,
    ).outputs
    return output


def test_numbers_agree_with_torch():
    generator = torch.Generator().manual_seed(3)
    reference = 4 * torch.randn(2, 3, 50, generator=generator)
    candidate = reference + 0.5 * torch.randn(reference.shape, generator=generator)
    logits = compare(reference, candidate).candidate_logits
    p, q = (torch.log_softmax(side.double(), -1) for side in (reference, candidate))
    kl = torch.nn.functional.kl_div(q, p, log_target=True, reduction="none").sum(-1)
    assert logits.positions == 6
    assert logits.kl_mean == pytest.approx(float(kl.mean()))
    assert logits.kl_max == pytest.approx(float(kl.max()))
    assert logits.kl_max_position == tuple(torch.nonzero(kl == kl.max())[0].tolist())
    assert logits.top1_agreements == int((reference.argmax(-1) == candidate.argmax(-1)).sum())
    error, norm = (candidate - reference).double(), reference.double()
    by_step = error.square().sum((0, 2)).sqrt() / norm.square().sum((0, 2)).sqrt()
    assert logits.relative_l2_by_step == pytest.approx(by_step.tolist(), rel=1e-6)
    assert logits.worst_step == int(by_step.argmax())


def test_exact_ties_take_the_lowest_token():
    reference = torch.tensor([[5.0, 1.0, 5.0]])
    same = compare(reference, reference.clone()).candidate_logits
    assert (same.top1_agreements, same.divergent, same.margin_min) == (1, 0, 0.0)
    other = compare(reference, torch.tensor([[4.99, 1.0, 5.0]])).candidate_logits
    (divergence,) = other.divergences
    assert (divergence.reference_token, divergence.other_token, divergence.reference_margin) == (0, 2, 0.0)


def test_a_divergence_carries_what_a_verdict_needs():
    reference = torch.tensor([[[9.0, 0.0, 0.0]], [[0.0, 16.0, 15.99]]])
    candidate = torch.tensor([[[9.0, 0.0, 0.0]], [[0.0, 15.98, 16.0]]])
    control = torch.tensor([[[9.0, 0.0, 0.0]], [[0.0, 16.03, 15.99]]])
    logits = compare(reference, candidate, control).candidate_logits
    (divergence,) = logits.divergences
    assert logits.first_divergent == divergence.position == (1, 0)
    assert divergence.reference_margin == pytest.approx(0.01, abs=1e-5)
    assert divergence.error_at_pair == pytest.approx(0.03, abs=1e-5)
    assert divergence.ulp == 16 * 2.0**-9
    assert divergence.control_error == pytest.approx(0.03 / math.sqrt(3), abs=1e-5)


def test_only_the_gravest_divergences_are_kept():
    margins = torch.linspace(0, 1, 40)
    reference = torch.stack([torch.full((40,), 9.0), 9 - margins], dim=-1)
    candidate = torch.tensor([0.0, 1.0]).expand(40, 2)
    logits = compare(reference, candidate).candidate_logits
    assert (logits.divergent, len(logits.divergences), logits.first_divergent) == (40, 32, (0,))
    assert [divergence.position for divergence in logits.divergences] == [(step,) for step in range(8, 40)]


def test_masked_vocabulary_entries_have_no_probability():
    reference = torch.tensor([[1.0, 2.0, -INF]])
    logits = compare(reference, reference.clone()).candidate_logits
    assert (logits.kl_mean, logits.relative_l2_by_step, logits.undefined_positions) == (0.0, (0.0,), 0)
    lost = compare(reference, torch.tensor([[1.0, -INF, -INF]])).candidate_logits
    assert lost.kl_max == INF


def test_rows_without_a_distribution_are_counted_and_left_out():
    reference = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    candidate = torch.tensor([[1.0, float("nan")], [1.0, 2.0]])
    logits = compare(reference, candidate).candidate_logits
    assert (logits.positions, logits.undefined_positions) == (2, 1)
    assert (logits.kl_mean, logits.top1_agreements, logits.divergent) == (0.0, 1, 0)
    nothing = compare(reference, torch.full((2, 2), INF)).candidate_logits
    assert (nothing.undefined_positions, nothing.kl_mean, nothing.top5_overlap) == (2, None, None)


def test_masked_positions_are_excluded():
    reference = torch.tensor([[[1.0, 2.0], [1.0, 2.0]]])
    candidate = torch.tensor([[[9.0, 2.0], [1.0, 2.0]]])
    mask = torch.tensor([[False, True]])
    logits = compare(reference, candidate, masks={"y": mask}).candidate_logits
    assert (logits.positions, logits.divergent, logits.relative_l2_by_step) == (1, 0, (None, 0.0))
