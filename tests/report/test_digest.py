"""A digest is a run in columns, and survives being written and read."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from harness.records import Status
from harness.report import RunDigest, digest, render
from tests.report.synthetic import Spec, runs


def test_statuses_outcomes_and_missing_cases():
    one = digest(runs(Spec(models=1, runs=1, missing=1, all_pass=True))[0])
    assert one.statuses == "PPPN"
    assert [one.ids[place].rpartition("/")[2] for place in (0, 3)] == ["spyre-eager-float16", "spyre-compiled-bfloat16"]
    assert (one.ratios[3], one.shares[3], one.seconds[3]) == (-1.0, -1.0, -1.0)
    assert one.night.counts == {Status.PASS: 3, Status.NOTRUN: 1}
    assert (one.cached, one.computed) == (3, 3)


def test_the_last_of_several_results_counts_and_the_run_is_not_complete():
    source = runs(Spec(models=1, runs=1, all_pass=True))[0]
    seen = list(source.results)
    again = seen[0].model_copy(update={"verdict": seen[0].verdict.model_copy(update={"status": Status.FAIL})})
    one = digest(replace(source, results=[*seen, again]))
    assert (one.statuses, one.facts.repeated) == ("FPPP", (seen[0].case.id,))


def test_dump_and_parse():
    one = digest(runs(Spec(models=3, runs=1, hostile=True, missing=2))[0])
    back = RunDigest.parse(one.dump())
    assert replace(back, ratios=one.ratios, shares=one.shares, seconds=one.seconds) == one
    for name in ("ratios", "shares", "seconds"):
        assert list(getattr(back, name)) == pytest.approx(list(getattr(one, name)), rel=1e-6, nan_ok=True)


def test_nan_and_infinity_survive():
    one = digest(runs(Spec(models=1, runs=1, configurations=2, all_pass=True))[0])
    one.ratios[0], one.ratios[1] = math.nan, math.inf
    back = RunDigest.parse(one.dump())
    assert math.isnan(back.ratios[0])
    assert back.ratios[1] == math.inf


def test_another_version_is_not_read():
    one = digest(runs(Spec(models=1, runs=1))[0])
    assert RunDigest.parse(json.dumps({**json.loads(one.dump()), "version": 0})) is None


def test_a_site_from_digests_is_the_site_from_runs(tmp_path):
    *old, newest = runs(Spec(models=3, runs=4))
    now = newest.run.finished
    render([*old, newest], tmp_path / "a", now=now)
    render([newest, *(RunDigest.parse(digest(one).dump()) for one in old)], tmp_path / "b", now=now)
    for path in (tmp_path / "a").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes(), path
