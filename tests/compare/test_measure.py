"""The C kernel and the pure form say the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from harness.compare.formats import number_format
from harness.compare.kernel import KERNEL
from harness.compare.measure import Meter, Probe

needs_kernel = pytest.mark.skipif(KERNEL is None, reason="the C kernel was not built: no compiler")

values = st.floats(width=32, allow_nan=False, allow_infinity=False)
pairs = st.integers(1, 40).flatmap(
    lambda size: st.tuples(*(arrays.arrays(np.float32, size, elements=values) for _ in range(2)))
)


def both(reference, side, name="float16", probe=Probe(1e-2, 1e-3)):  # noqa: B008
    meters = [Meter(number_format(name), probe, kernel) for kernel in (KERNEL, None)]
    with np.errstate(all="ignore"):
        return meters, [meter.add(reference, side) for meter in meters]


def assert_alike(reference, side, name="float16"):
    meters, (fast, pure) = both(reference, side, name)
    for histogram in ("errors", "ulps"):
        np.testing.assert_array_equal(*(getattr(meter, histogram).counts for meter in meters))
    if pure is None:
        assert fast is None
        return
    assert fast is not None
    assert dataclasses.replace(fast, sums=pure.sums) == pure
    bounds = pure.sums[1], pure.sums[3], pure.sums[4]
    np.testing.assert_allclose(fast.sums, pure.sums, rtol=1e-12, atol=1e-12 * max(*bounds, 1e-300))


@needs_kernel
@settings(deadline=None, max_examples=150)
@given(pairs, st.sampled_from(["dlfloat16", "float16", "bfloat16", "float32"]))
def test_kernel_equals_pure_form_on_any_finite_floats(pair, name):
    assert_alike(*pair, name)


@needs_kernel
@pytest.mark.parametrize("size", [1, 15, 16, 1023, 1024, 1025, 5000])
def test_kernel_equals_pure_form_at_every_tail(size):
    generator = np.random.default_rng(size)
    reference = generator.standard_normal(size, np.float32)
    assert_alike(reference, reference + generator.standard_normal(size, np.float32) / 100)


@pytest.mark.parametrize("kernel", [pytest.param(KERNEL, marks=needs_kernel, id="c"), pytest.param(None, id="pure")])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["reference", "side", "both"])
def test_a_block_with_a_nonfinite_value_is_refused_and_leaves_no_trace(kernel, odd, where):
    reference, side = np.ones(5, np.float32), np.ones(5, np.float32)
    if where != "side":
        reference[3] = odd
    if where != "reference":
        side[3] = odd
    meter = Meter(number_format("float16"), Probe(1e-2, 1e-2), kernel)
    with np.errstate(invalid="ignore"):
        assert meter.add(reference, side) is None
    assert not meter.errors.counts.any()
