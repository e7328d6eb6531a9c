"""What a unit in the last place is."""

from __future__ import annotations

import math

import pytest

from harness.compare import number_format


@pytest.mark.parametrize(
    ("name", "epsilon", "largest"),
    [
        ("dlfloat16", 2.0**-9, 8.573157376e9),
        ("float16", 2.0**-10, 65504.0),
        ("bfloat16", 2.0**-7, 3.3895313892515355e38),
        ("float32", 2.0**-23, 3.4028234663852886e38),
    ],
)
def test_constants(name, epsilon, largest):
    assert (number_format(name).epsilon, number_format(name).largest) == (epsilon, largest)


def test_ulp_follows_the_binade_and_stops_at_the_smallest_normal():
    form = number_format("float16")
    assert [form.ulp(value) for value in (1.0, -1.99, 2.0, 0.0, 2.0**-20)] == [
        2.0**-10,
        2.0**-10,
        2.0**-9,
        2.0**-24,
        2.0**-24,
    ]
    assert form.ulp(math.nan) == math.inf
