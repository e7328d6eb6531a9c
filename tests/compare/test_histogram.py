"""Quantiles from logarithmic bins."""

from __future__ import annotations

import numpy as np
import pytest

from harness.compare.histogram import LogHistogram


def quantiles(values, shares):
    histogram = LogHistogram()
    array = np.array(values, np.float32)
    histogram.add(array)
    return histogram.quantiles(shares, float(array.max(initial=0)))


def test_an_empty_histogram_has_no_quantiles():
    assert quantiles([], [0.5]) == ()


def test_zeros_are_zeros():
    assert quantiles([0.0] * 9 + [1.0], [0.5, 0.9, 1.0]) == (0.0, 0.0, 1.0)


def test_quantiles_stay_within_a_bin_and_below_the_largest():
    values = np.exp(np.random.default_rng(0).standard_normal(20000) * 4)
    shares = [0.01, 0.5, 0.99, 0.999, 1.0]
    found = quantiles(values, shares)
    assert found == pytest.approx(np.quantile(values, shares), rel=1 / 16)
    assert found[-1] <= np.float32(values.max())
    assert list(found) == sorted(found)
