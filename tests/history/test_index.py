"""Tests of the index: what goes in comes out, by case, model, op and metric; nothing is lost or doubled."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.errors import StoreError
from harness.history import RunView, Sample, changes, view
from harness.history.index import Index, RunEntry
from harness.history.rows import case_rows
from harness.records import (
    Case,
    CaseResult,
    Comparison,
    DeviceUse,
    Expectation,
    FolderSource,
    Inputs,
    LogitNumbers,
    Observation,
    OpUse,
    Outcome,
    OutcomeKind,
    OutputComparison,
    PairNumbers,
    Role,
    Run,
    Stage,
    Status,
    Verdict,
)
from tests.history.script import FIRST, environment, script

NOW = datetime(2026, 1, 31, 2, tzinfo=UTC)
EXPECTATION = Expectation(outcome="outside_rule", reason="numbers are wrong")


def case(name: str) -> Case:
    return Case(
        id=f"{name}/causal-lm/spyre-eager-float16",
        model=name,
        task="causal-lm",
        target="spyre",
        mode="eager",
        dtype="float16",
        source=FolderSource(folder="x"),
        inputs=Inputs(texts=("Hello",)),
        expectation=EXPECTATION,
        expectation_at="models.yaml:8",
    )


def result(name: str, error: float = 0.01, status: Status = Status.XFAIL) -> CaseResult:
    device = DeviceUse(
        ops=tuple(OpUse(op=op, state="spyre_enabled", count=3) for op in ("aten.mm.default", "aten.mm.default"))
    )
    observation = Observation(
        role="candidate",
        target="spyre",
        dtype="float16",
        mode="eager",
        threads=1,
        weights_digest="w",
        seconds={Stage.RUN: 2.5},
        device=device,
    )
    output = OutputComparison(
        name="logits",
        shape=(1, 2),
        elements=2,
        candidate=PairNumbers(finite_pairs=2, relative_l2=error),
        control=PairNumbers(finite_pairs=2, relative_l2=0.001),
        candidate_logits=LogitNumbers(positions=1, kl_mean=0.5),
    )
    return CaseResult(
        case=case(name),
        outcome=Outcome(kind=OutcomeKind.COMPLETED, stage=Stage.COMPARE),
        verdict=Verdict(status=status, sentence="known", flags=("fallback",)),
        observations={Role.CANDIDATE: observation},
        comparison=Comparison(outputs=(output,)),
        started=NOW,
        finished=NOW,
    )


def run(day: int, *names: str) -> Run:
    started = NOW + timedelta(days=day)
    return Run(
        run_id=f"{started:%Y%m%dT%H%M%SZ}-{day:06x}",
        started=started,
        finished=started,
        profile="nightly",
        environment=environment(),
        plan=tuple(case(name) for name in names),
    )


def entry(one: RunView) -> RunEntry:
    return RunEntry(
        run_id=one.run_id,
        started=one.started,
        finished=one.finished,
        profile=one.profile,
        selection=one.selection,
        missing=tuple(one.missing),
        environment=one.environment,
    )


def rows_of(one: RunView) -> dict[str, dict[str, list[Any]]]:
    return {"cases": case_rows(one.samples.values())}


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    index = Index(str(tmp_path))
    for day in range(3):
        index.add(run(day, "a", "b", "lost"), [result("a", 0.01 * (day + 1)), result("b")])
    index = Index(str(tmp_path))
    (first, one), _, (_, last) = index.case("a/causal-lm/spyre-eager-float16")
    assert first == run(0).run_id
    assert one == view(run(0), [result("a", 0.01)]).samples[one.case]
    assert (last.error, last.seconds, last.expected) == (0.03, 2.5, "outside_rule")
    assert index.case("a/causal-lm") == []
    assert index.model("a")["case"].to_pylist() == ["a/causal-lm/spyre-eager-float16"] * 3
    assert index.metric(one.case, "relative_l2").select(["role", "value"]).to_pydict() == {
        "role": ["candidate", "control"] * 3,
        "value": [0.01, 0.001, 0.02, 0.001, 0.03, 0.001],
    }
    assert index.op("aten.mm.default").select(["case", "count"]).to_pylist()[:2] == [
        {"case": "a/causal-lm/spyre-eager-float16", "count": 6},
        {"case": "b/causal-lm/spyre-eager-float16", "count": 6},
    ]
    views = index.views(2)
    assert views == [view(run(day, "a", "b", "lost"), [result("a", 0.01 * (day + 1)), result("b")]) for day in (1, 2)]
    assert views[0].missing == ["lost/causal-lm/spyre-eager-float16"]
    assert [one.run_id for one in index.views(5, until=run(1).run_id)] == [run(0).run_id, run(1).run_id]
    index.add(run(3, "a").model_copy(update={"expectations": "validate"}), [result("a", status=Status.FAIL)])
    assert [one.lane for one in Index(str(tmp_path)).views(2)] == ["x86_64 emulator", "x86_64 emulator validate"]
    with pytest.raises(StoreError, match="run x is not in the index"):
        index.views(1, until="x")


def test_compaction_keeps_every_row_once(tmp_path: Path) -> None:
    index = Index(str(tmp_path))
    for day in range(12):
        index.add(run(day, "a"), [result("a", 0.01 + day / 1000)])
    before = index.case(case("a").id)
    index.compact()
    index.add(run(3, "a"), [result("a", 9.0)])
    joined = [path.name for path in tmp_path.rglob("cases/*/*.parquet")]
    after = Index(str(tmp_path)).case(case("a").id)
    assert len(joined) == 3
    assert [run_id for run_id, _ in after] == [run_id for run_id, _ in before] == [run(d).run_id for d in range(12)]
    assert [one.error for _, one in after][2:5] == [0.012, 9.0, 0.014]
    Index(str(tmp_path)).compact()
    assert Index(str(tmp_path)).case(case("a").id) == after


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    one, other = Index(str(tmp_path)), Index(str(tmp_path))
    one.add(run(0, "a"), [result("a")])
    other.add(run(1, "a"), [result("a")])
    assert len(one.case(case("a").id)) == len(other.case(case("a").id)) == len(one.entries) == 2


def test_a_run_counts_when_it_is_whole(tmp_path: Path) -> None:
    index = Index(str(tmp_path))
    index.add(run(0, "a"), [result("a")])
    index.add(run(1, "a"), [result("a")])
    (tmp_path / "runs" / f"{run(1).run_id}.json").unlink()
    (tmp_path / "cases" / "2026-02" / ".half.parquet.1").write_bytes(b"PAR1")
    assert len(Index(str(tmp_path)).case(case("a").id)) == 1


def test_an_empty_index_answers(tmp_path: Path) -> None:
    index = Index(str(tmp_path / "new"))
    assert (index.case("a"), index.views(9), index.entries, len(index.op("x"))) == ([], [], (), 0)
    index.add(run(0), [])
    assert [one.samples for one in index.views(9)] == [{}]


def test_other_schemas_are_refused(tmp_path: Path) -> None:
    Index(str(tmp_path))
    for content, said in [
        (json.dumps({"schema": 2}), "schema 2, this harness has 1; upgrade the harness"),
        (json.dumps({"schema": 0}), "schema 0, this harness has 1; add the run directories to a new index"),
        ("{", "is damaged; remove the index and add the run directories again"),
    ]:
        (tmp_path / "index.json").write_text(content)
        with pytest.raises(StoreError, match=said):
            Index(str(tmp_path))


def test_prune_forgets_whole_months(tmp_path: Path) -> None:
    index = Index(str(tmp_path))
    for day in (0, 1, 30):
        index.add(run(day, "a"), [result("a")])
    index.prune(datetime(2026, 2, 20, tzinfo=UTC))
    assert [one.run_id for one in index.entries] == [run(1).run_id, run(30).run_id]
    assert len(index.case(case("a").id)) == 2


def test_any_fsspec_url_will_do() -> None:
    index = Index("memory://history-test")
    index.add(run(0, "a"), [result("a")])
    assert [one.status for _, one in Index("memory://history-test").case(case("a").id)] == [Status.XFAIL]


def test_the_change_report_of_a_night_from_the_index(tmp_path: Path) -> None:
    story = script(7, nights=40)
    index = Index(str(tmp_path))
    for one in story.runs:
        index.add_rows(entry(one), rows_of(one))
    views = Index(str(tmp_path)).views(60)
    assert [dict(one.samples) for one in views] == [dict(one.samples) for one in story.runs]
    for at in (len(views) - 1, len(views) // 2):
        assert changes(views[:at], views[at]) == changes(story.runs[:at], story.runs[at])


def test_samples_survive_with_all_their_fields(tmp_path: Path) -> None:
    odd = Sample(
        case="a",
        status=Status.FAIL,
        kind=OutcomeKind.CRASH,
        stage=None,
        error=float("inf"),
        limits=(("cosine", 0.9),),
        retried=(OutcomeKind.CRASH, OutcomeKind.COMPLETED),
        flags=("drilled", "relaxed"),
        sentence="<img onerror=x> \x00 é",
    )
    one = RunView("r", FIRST, environment(), {"a": odd}, frozenset({"a"}), lane="x86_64 emulator")
    index = Index(str(tmp_path))
    index.add_rows(entry(one), rows_of(one))
    assert index.views(1) == [one]
