"""Elementwise numbers against their definitions, and the values that have none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from harness.compare import compare_outputs
from harness.compare.pairs import BLOCK

NAN, INF = float("nan"), float("inf")


def compare(reference, candidate, **options):
    (output,) = compare_outputs({"y": reference}, {"y": candidate}, None, **options).outputs
    return output


@pytest.fixture(scope="module")
def large():
    generator = torch.Generator().manual_seed(1)
    reference = 3 * torch.randn(5, BLOCK // 2 + 11, generator=generator) + 0.5
    noise = 1e-2 * torch.randn(reference.shape, generator=generator)
    return reference, 1.02 * reference + noise - 0.25


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_numbers_agree_with_their_definitions(large, dtype):
    reference, candidate = large[0], large[1].to(dtype)
    pair = compare(reference, candidate, candidate_format="float16").candidate
    y, x = reference.double().numpy().ravel(), candidate.double().numpy().ravel()
    error = np.abs(x - y)
    assert pair.finite_pairs == y.size
    assert pair.max_abs == pytest.approx(error.max(), rel=1e-6)
    assert pair.max_abs_index == np.unravel_index(error.argmax(), reference.shape)
    assert pair.mean_abs == pytest.approx(error.mean(), rel=1e-6)
    assert pair.rms == pytest.approx(np.sqrt((error**2).mean()), rel=1e-6)
    assert pair.relative_l2 == pytest.approx(np.linalg.norm(x - y) / np.linalg.norm(y), rel=1e-6)
    assert pair.cosine == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y), abs=1e-9)
    assert pair.pearson == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
    assert (pair.scale, pair.offset) == pytest.approx(np.polyfit(y, x, 1), abs=1e-6)
    assert pair.mismatches == pytest.approx((error > 1e-2 + 1e-2 * np.abs(y)).sum(), abs=2)
    assert pair.minimum_tolerance == pytest.approx((error / (1 + np.abs(y))).max(), rel=1e-6)
    assert pair.abs_quantiles == pytest.approx(np.quantile(error, [0.5, 0.9, 0.99, 0.999]), rel=0.02)
    ulp = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(y), 2.0**-14))) - 10)
    assert pair.ulp_max == pytest.approx((error / ulp).max(), rel=1e-6)
    assert (pair.ulp_median, pair.ulp_p99) == pytest.approx(np.quantile(error / ulp, [0.5, 0.99]), rel=0.02)


@pytest.mark.parametrize(
    ("name", "value", "step"),
    [
        ("dlfloat16", 1.0, 2.0**-9),
        ("float16", 1.0, 2.0**-10),
        ("bfloat16", 1.0, 2.0**-7),
        ("float32", 1.0, 2.0**-23),
        ("float16", 2.0**-20, 2.0**-24),
        ("bfloat16", 3e38, 2.0**120),
        ("dlfloat16", -8.573157376e9, 2.0**23),
    ],
)
def test_one_ulp_is_one_ulp(name, value, step):
    reference = torch.tensor([value], dtype=torch.float64)
    pair = compare(reference, reference + math.copysign(step, -value), candidate_format=name).candidate
    assert pair.ulp_max == pytest.approx(1.0)


@pytest.mark.parametrize("swapped", [False, True])
def test_correlation_with_a_constant_is_undefined(swapped):
    generator = torch.Generator().manual_seed(2)
    sides = [torch.rand(100, generator=generator), torch.ones(100)]
    reference, candidate = sides[::-1] if swapped else sides
    output = compare(reference, candidate)
    assert output.candidate.pearson is None
    assert output.candidate.relative_l2 > 0.4
    assert output.reference_census.constant is swapped
    assert output.candidate_census.constant is not swapped


def test_nan_on_both_sides_is_counted_apart():
    reference = torch.tensor([1.0, 2.0, 3.0, NAN, 5.0])
    output = compare(reference, reference.half())
    pair = output.candidate
    assert (pair.finite_pairs, pair.nan_matches, pair.nonfinite_mismatches) == (4, 1, 0)
    assert (pair.max_abs, pair.relative_l2) == (0.0, 0.0)
    assert output.reference_census.first_nonfinite == (3,)
    assert (output.reference_census.nan, output.candidate_census.nan) == (1, 1)


@pytest.mark.parametrize(
    ("reference", "candidate", "lost", "made", "changed"),
    [
        (NAN, 1.0, 1, 0, 0),
        (1.0, NAN, 0, 1, 0),
        (INF, 1.0, 1, 0, 0),
        (NAN, INF, 0, 0, 1),
        (INF, -INF, 0, 0, 1),
        (INF, INF, 0, 0, 0),
    ],
)
def test_nonfinite_classes(reference, candidate, lost, made, changed):
    pair = compare(torch.tensor([[1.0, reference]]), torch.tensor([[1.0, candidate]])).candidate
    assert (pair.nonfinite_lost, pair.nonfinite_made, pair.nonfinite_changed) == (lost, made, changed)
    assert pair.nonfinite_mismatches == lost + made + changed
    assert pair.nonfinite_first == ((0, 1) if lost + made + changed else None)
    assert pair.finite_pairs == 1


def test_nonfinite_values_in_one_block_leave_the_others_alone(large):
    reference, candidate = large[0].clone(), large[1].clone()
    reference[2, 7] = candidate[2, 7] = NAN
    candidate[3, 9] = INF
    pair = compare(reference, candidate).candidate
    plain = compare(*large).candidate
    assert (pair.nan_matches, pair.nonfinite_made, pair.nonfinite_first) == (1, 1, (3, 9))
    assert pair.finite_pairs == plain.finite_pairs - 2
    assert pair.max_abs_index == plain.max_abs_index
    assert pair.relative_l2 == pytest.approx(plain.relative_l2, rel=1e-3)


def test_unwritten_buffers_show_their_pattern():
    pattern = torch.full((4,), 0xAAAAAAAA - (1 << 32), dtype=torch.int32)
    assert compare(torch.arange(4), pattern).candidate_census.pattern == "0xaaaaaaaa"
    zeros = compare(torch.arange(4.0), torch.zeros(4, dtype=torch.float16)).candidate_census
    assert (zeros.constant, zeros.pattern, zeros.zeros) == (True, "0x0000", 4)


def test_saturation_is_counted_in_the_format_and_the_host_dtype():
    reference = torch.tensor([7e4, 1.0])
    assert compare(reference, torch.tensor([65504.0, 1.0]).half()).candidate_census.saturated == 1
    assert compare(reference, torch.tensor([7e4, 1.0])).candidate_census.saturated == 0
    largest = torch.tensor([8.573157376e9, 1.0])
    assert compare(largest, largest).candidate_census.saturated == 1


def test_differences_beyond_float32_are_numbers():
    pair = compare(torch.tensor([3e38, 1.0]), torch.tensor([-3e38, 1.0])).candidate
    assert pair.max_abs == pytest.approx(6e38, rel=1e-6)
    assert (pair.finite_pairs, pair.nonfinite_mismatches) == (2, 0)


def test_all_zero_sides_leave_ratios_undefined():
    zero = torch.zeros(3)
    both = compare(zero, zero).candidate
    assert (both.relative_l2, both.cosine, both.pearson, both.scale) == (None, None, None, None)
    assert (both.max_abs, both.unequal) == (0.0, 0)
    candidate_zero = compare(torch.tensor([1.0, 2.0]), torch.zeros(2)).candidate
    assert (candidate_zero.relative_l2, candidate_zero.cosine) == (1.0, None)


def test_a_scalar_has_an_index():
    assert compare(torch.tensor(1.0), torch.tensor(1.5)).candidate.max_abs_index == ()


def test_inputs_are_left_as_they_were():
    reference, candidate = torch.tensor([1.0, -2.0, NAN]), torch.tensor([1.0, -2.5, 3.0])
    before = reference.clone(), candidate.clone()
    compare(reference, candidate)
    torch.testing.assert_close((reference, candidate), before, rtol=0, atol=0, equal_nan=True)


def test_views_and_strides_do_not_matter():
    reference = torch.arange(24.0).reshape(4, 6)
    candidate = (reference + 0.5).t().contiguous().t()
    pair = compare(reference, candidate).candidate
    assert (pair.max_abs, pair.mean_abs, pair.offset) == (0.5, 0.5, pytest.approx(0.5))
