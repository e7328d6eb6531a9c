"""A model counts as verified only when every planned configuration passed."""

from __future__ import annotations

import pytest

from harness.records import Status
from harness.report.compat import badge, night_badge, support, support_level
from harness.report.matrix import entries
from harness.report.rows import rows
from tests.report.synthetic import Spec, runs

P, F, K, X, S, E, N = (
    Status.PASS,
    Status.FAIL,
    Status.XFAIL,
    Status.XPASS,
    Status.SKIP,
    Status.ERROR,
    Status.NOTRUN,
)


@pytest.mark.parametrize(
    ("statuses", "level"),
    [
        ((P, P), "verified"),
        ((P, S), "partly"),
        ((P, N), "partly"),
        ((P, K), "partly"),
        ((K, S), "known"),
        ((P, F), "failing"),
        ((P, E), "failing"),
        ((P, X), "failing"),
        ((S, N), "unverified"),
        ((), "unverified"),
    ],
)
def test_levels(statuses, level):
    assert support_level(statuses) == level


def test_a_line_and_its_badge():
    one = runs(Spec(models=1, runs=1, missing=1, all_pass=True))[0]
    table = {row.case_id: row for row in rows(one.run.run_id, one.run.plan, one.results)}
    (line,) = support(entries(one.run.plan), table)
    assert (line.model, line.level, line.origin) == ("granite-1.0-0b", "partly", f"hub:example/granite@{'5' * 40}")
    assert badge(line) == {
        "schemaVersion": 1,
        "label": "granite-1.0-0b",
        "message": "partly verified 3/4",
        "color": "yellow",
    }


@pytest.mark.parametrize(
    ("level", "colour"), [("good", "brightgreen"), ("bad", "red"), ("incomplete", "yellow"), ("empty", "yellow")]
)
def test_only_a_good_night_is_green(level, colour):
    assert night_badge(level, "x")["color"] == colour
