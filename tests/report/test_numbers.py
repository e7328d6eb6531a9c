"""Numbers read well and survive strict JSON."""

from __future__ import annotations

import json
import math

import pytest

from harness.report.numbers import dumps, duration, json_number, percent, readable, strict


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (2.918427, 2.918),
        (3.0, 3),
        (1e300, 1e300),
    ],
)
def test_json_numbers(value, expected):
    assert json_number(value, 4) == expected


def test_strict_replaces_non_finite_numbers_and_leaves_words_alone():
    tree = {"BaNaNa-Infinity": [math.nan, "NaN in a sentence", (math.inf, None, True)]}
    assert strict(tree) == {"BaNaNa-Infinity": ["NaN", "NaN in a sentence", ["Infinity", None, True]]}


def test_dumps_is_safe_in_a_script_and_parses_to_the_same():
    value = {"</script>": "<img> & \u2028"}
    text = dumps(value)
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text) == value
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps(math.nan)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "–"),
        (math.nan, "NaN"),
        (-math.inf, "-inf"),
        (0.0, "0"),
        (2.918, "2.92"),
        (4.2e-7, "4.20e-07"),
        (12345.6, "12,346"),
    ],
)
def test_readable(value, expected):
    assert readable(value) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [(None, "–"), (0.0, "0 %"), (0.00001, "<0.1 %"), (0.914, "91.4 %"), (0.99999, ">99.9 %"), (1.0, "100 %")],
)
def test_a_share_never_rounds_to_all_or_nothing(share, expected):
    assert percent(share) == expected


def test_duration():
    assert [duration(x) for x in (0.42, 200, 7500)] == ["0.42 s", "3 m 20 s", "2 h 5 m"]
