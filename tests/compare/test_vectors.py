"""Errors of single vectors, and what is typical of them."""

from __future__ import annotations

import math

import pytest
import torch

from harness.compare import compare_outputs
from harness.compare import vectors as module


def compare(reference, candidate, control=None, **options):
    controls = None if control is None else {"y": control}
    (output,) = compare_outputs({"y": reference}, {"y": candidate}, controls, **options).outputs
    return output


@pytest.mark.parametrize("elements", [7, 64, 1 << 18])
def test_the_worst_vector_is_found_whatever_the_blocks(monkeypatch, elements):
    monkeypatch.setattr(module, "ELEMENTS", elements)
    generator = torch.Generator().manual_seed(4)
    reference = torch.randn(3, 5, 20, generator=generator)
    candidate = reference + 1e-3 * torch.randn(reference.shape, generator=generator)
    candidate[2, 1] *= 1.5
    pair = compare(reference, candidate).candidate
    expected = (candidate[2, 1].double() - reference[2, 1].double()).norm() / reference[2, 1].double().norm()
    assert pair.worst_vector == (2, 1)
    assert pair.worst_vector_l2 == pytest.approx(float(expected))


def test_the_typical_ratio_is_a_geometric_mean():
    reference = torch.ones(2, 4, dtype=torch.float64)
    candidate = reference + torch.tensor([[0.08], [0.02]])
    control = reference + 0.01
    floor = 2.0**-10 / math.sqrt(12)
    expected = math.sqrt(0.08 * 0.02) / math.hypot(0.01, floor)
    assert compare(reference, candidate, control).typical_ratio == pytest.approx(expected)


def test_the_worst_ratio_has_the_control_s_error_there_and_in_its_row_for_a_unit():
    reference = torch.ones(2, 2, 4, dtype=torch.float64)
    control = reference + torch.tensor([[[0.03], [0.0]], [[0.001], [0.001]]])
    candidate = reference + torch.tensor([[[0.0], [0.06]], [[0.0], [0.02]]])
    floor = 2.0**-10 / math.sqrt(12)
    found = compare(reference, candidate, control)
    assert found.worst_ratio_at == (1, 1), "the row with the smaller unit, not the larger error"
    assert found.worst_ratio == pytest.approx(0.02 / math.sqrt(0.001**2 + 0.001**2 + floor**2))
    alone = compare(reference[:1], candidate[:1], control[:1])
    assert alone.worst_ratio_at == (0, 1)
    assert alone.worst_ratio == pytest.approx(0.06 / math.sqrt(0.03**2 / 2 + floor**2))
    assert compare(reference, candidate).worst_ratio is None


def test_an_exact_vector_counts_as_rounding_and_not_as_zero():
    reference = torch.ones(2, 4, dtype=torch.float64)
    candidate = reference.clone()
    candidate[0] += 1.0
    floor = 2.0**-10 / math.sqrt(12)
    assert compare(reference, candidate, reference).typical_ratio == pytest.approx(math.sqrt(1 / floor))


def test_zero_vectors_are_undefined_and_errors_on_them_infinite():
    reference = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    same = compare(reference, reference.clone(), reference.clone())
    assert (same.candidate.worst_vector, same.candidate.worst_vector_l2) == ((1,), 0.0)
    candidate = torch.tensor([[0.0, 0.5], [1.0, 1.0]])
    wrong = compare(reference, candidate, candidate.clone()).candidate
    assert (wrong.worst_vector, wrong.worst_vector_l2) == ((0,), math.inf)
    zero = torch.zeros(2, 2)
    assert compare(zero, zero.clone(), zero.clone()).typical_ratio is None


def test_nonfinite_elements_are_left_out():
    reference = torch.tensor([[1.0, float("nan"), 2.0]])
    candidate = torch.tensor([[1.0, 5.0, 2.5]])
    assert compare(reference, candidate).candidate.worst_vector_l2 == pytest.approx(0.5 / math.sqrt(5))


def test_masked_vectors_do_not_count():
    reference = torch.ones(2, 2, 3)
    candidate = reference.clone()
    candidate[0, 1] = 9.0
    candidate[1, 0] += 0.25
    mask = torch.tensor([[True, False], [True, True]])
    pair = compare(reference, candidate, masks={"y": mask}).candidate
    assert (pair.worst_vector, pair.worst_vector_l2) == ((1, 0), pytest.approx(0.25))


def test_one_dimension_is_one_vector():
    reference, control = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.1])
    output = compare(reference, torch.tensor([3.5, 4.0]), control)
    assert (output.candidate.worst_vector, output.candidate.worst_vector_l2) == ((), pytest.approx(0.1))
    assert output.typical_ratio == pytest.approx(5.0, rel=1e-3)
    zero = compare(torch.zeros(2), torch.zeros(2), torch.zeros(2))
    assert (zero.candidate.worst_vector_l2, zero.typical_ratio) == (None, None)
