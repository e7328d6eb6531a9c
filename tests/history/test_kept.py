"""A view survives being written and read."""

from __future__ import annotations

import json
import math
from dataclasses import fields

from harness.history import RunView, dump, parse
from harness.records import ExpectationMode, OutcomeKind, Status
from tests.history.script import night, sample


def test_a_view_is_read_as_it_was_written() -> None:
    view = night(
        3,
        sample("a", Status.XFAIL, expected="outside_rule", expectation_at="models.yaml:7", sentence="as known"),
        sample("b", Status.NOTRUN, stage=None, error=None, seconds=None, limits=()),
        sample("c", retried=(OutcomeKind.CRASH, OutcomeKind.COMPLETED), flags=("relaxed", "near_tie")),
        sample("d", Status.FAIL, error=math.inf),
        planned=frozenset("abcde"),
        selection="--shard 1/2",
        expectations=ExpectationMode.VALIDATE,
    )
    assert parse(dump(view)) == view
    assert set(json.loads(dump(view))) - {"version"} == {one.name for one in fields(RunView) if one.compare}


def test_nan_is_strict_json() -> None:
    text = dump(night(0, sample("a", error=math.nan)))
    assert "NaN" not in text
    back = parse(text)
    assert back is not None
    assert math.isnan(back.samples["a"].error or 0)


def test_a_run_without_results() -> None:
    view = night(0, planned=frozenset({"a"}))
    assert isinstance(view, RunView)
    assert parse(dump(view)) == view


def test_another_version_is_not_read() -> None:
    assert parse(json.dumps({**json.loads(dump(night(0))), "version": 0})) is None
