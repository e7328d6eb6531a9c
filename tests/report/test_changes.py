"""Changes are shown worse first; without a history, statuses alone are compared."""

from __future__ import annotations

from harness.records import Change, ChangeKind
from harness.report import changes, digest
from harness.report.timeline import Timeline
from tests.report.synthetic import Spec, runs


def change(case, kind, direction, run="r2"):
    return Change(case=case, kind=kind, direction=direction, run=run, since=run, sentence="Because of that.")


def test_worse_first_then_by_kind_and_case():
    given = [
        change("c", ChangeKind.NEW, "neutral"),
        change("b", ChangeKind.FIXED, "better"),
        change("b", ChangeKind.DRIFTED, "worse"),
        change("a", ChangeKind.DRIFTED, "worse"),
        change("z", ChangeKind.REGRESSED, "worse"),
        change("z", ChangeKind.REGRESSED, "worse", run="r1"),
    ]
    assert [(one.case, one.kind.value) for one in changes.of_run("r2", given)] == [
        ("z", "regressed"),
        ("a", "drifted"),
        ("b", "drifted"),
        ("b", "fixed"),
        ("c", "new"),
    ]


def test_labels_join_the_words_of_a_case():
    given = [change("a", ChangeKind.RELAXED, "worse"), change("a", ChangeKind.FIXED, "better")]
    assert changes.labels(given) == {"a": "relaxed worse fixed better"}


def test_statuses_alone():
    sources = runs(Spec(models=40, runs=3))
    timeline = Timeline([digest(one) for one in sources], [case.id for case in sources[-1].run.plan])
    found = changes.derived(timeline, 2)
    assert {(one.kind.value, one.direction) for one in found} <= {("regressed", "worse"), ("fixed", "better")}
    worse = [one for one in found if one.direction == "worse"]
    assert worse
    assert {one.sentence for one in worse} == {"PASS before, FAIL now."}
    assert {one.before for one in found} == {"20261102T030000Z-000001"}
    assert changes.derived(timeline, 0) == []
