"""Runs side by side: aligned statuses, packed history, moves with better and worse apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.records import Status
from harness.report.columns import column_of
from harness.report.digest import digest
from harness.report.timeline import Timeline
from tests.report.synthetic import Results, Spec, runs

SPEC = Spec(models=1, runs=3, all_pass=True)


def timeline(*nights):
    """A timeline of the statuses given per night; None: no result and not planned."""
    digests = []
    for source, statuses in zip(runs(replace(SPEC, runs=len(nights))), nights, strict=True):
        kept = [(case, status) for case, status in zip(source.run.plan, statuses, strict=True) if status]
        plan = tuple(case for case, _ in kept)
        results = Results(SPEC, plan, tuple(status for _, status in kept), 0)
        totals = {status: [s for _, s in kept].count(status) for _, status in kept}
        digests.append(
            digest(replace(source, run=source.run.model_copy(update={"plan": plan, "totals": totals}), results=results))
        )
    return Timeline(digests, [case.id for case in source.run.plan])


P, F, K = Status.PASS, Status.FAIL, Status.XFAIL


def test_history_is_run_length_coded():
    found = timeline((P, P, None, P), (P, F, P, K), (P, F, P, K))
    assert list(found.packed_statuses()) == ["P3", "PF2", "-P2", "PK2"]


def test_moves_keep_better_and_worse_apart():
    found = timeline((P, F, None, P), (F, P, P, K)).moves(0, 1)
    ids = [case.rpartition("/")[2] for case in (*found.worse, *found.better, *found.new)]
    assert ids == ["spyre-eager-float16", "spyre-compiled-float16", "spyre-compiled-float16-b1s64"]
    assert found.gone == ()


def test_a_night_is_compared_with_the_last_complete_one():
    whole = timeline((P, P, P, P), (P, P, P, P), (P, P, P, P))
    assert whole.last_complete_before(2) == 1
    whole.digests = (
        whole.digests[0],
        replace(whole.digests[1], facts=replace(whole.digests[1].facts, finished=False)),
        whole.digests[2],
    )
    assert whole.last_complete_before(2) == 0
    assert timeline((P, P, P, P)).last_complete_before(0) is None


def test_numbers_over_time():
    found = timeline((P, P, P, P), (None, P, P, P))
    columns = {name: list(column_of(text)) for name, text in found.history(0, 2).items()}
    assert [number > 0 for number in columns["ratio"]] == [True, True, False, True]
    assert columns["ratio"][2] == columns["share"][2] == columns["seconds"][2] == -1.0
    assert columns["ratio"][0] == pytest.approx(found.numbers(0)[0][0], rel=1e-6)
