"""Tests of the rows for ClickHouse; against a real engine where chdb is installed (``nox -s clickhouse``)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.history.clickhouse import ADDED, FAILURE_CATEGORY, TABLES, TEST_STATUS, schema, statements
from harness.records import CaseResult, ExpectationMode, Outcome, OutcomeKind, Stage, Status
from tests.history.test_index import result, run

INCUMBENT = {
    "not-implemented-adapter",
    "model_too_large",
    "moe",
    "unsupported_checkpoint",
    "quantized_model",
    "misformed_hf_failed",
    "cpu_load_failed",
    "cpu_generate_failed",
    "test_execution_exception",
    "verification_failed",
    "hardware_exception",
    "worker_crashed",
    "worker_timeout",
}
HOSTILE = 'it\'s "quoted"; DROP TABLE conformance_runs; -- \\ \n\x00 <b> \ud800 é'


def rows(table: str, *results: CaseResult, day: int = 0) -> list[dict[str, Any]]:
    for statement in statements(run(day, "a", "b"), results):
        head, _, body = statement.partition("\n")
        if head == f"INSERT INTO {table} FORMAT JSONEachRow":
            return [json.loads(line) for line in body.splitlines()]
    return []


def failing(name: str, kind: OutcomeKind, stage: Stage, sentence: str = "why") -> CaseResult:
    one = result(name, status=Status.FAIL)
    verdict = one.verdict.model_copy(update={"sentence": sentence})
    return one.model_copy(update={"outcome": Outcome(kind=kind, stage=stage), "verdict": verdict})


def test_words_are_the_incumbents() -> None:
    assert set(FAILURE_CATEGORY.values()) <= INCUMBENT
    assert set(TEST_STATUS) == set(Status)
    infra = {
        OutcomeKind.UNAVAILABLE,
        OutcomeKind.GATED,
        OutcomeKind.CANCELLED,
        OutcomeKind.LOST_WORKER,
        OutcomeKind.EXCLUDED,
    }
    assert set(OutcomeKind) - set(FAILURE_CATEGORY) == infra


def test_a_case_as_a_row() -> None:
    (row,) = rows("conformance_test_cases", failing("a", OutcomeKind.CRASH, Stage.RUN))
    assert row == {
        "run_id": run(0).run_id,
        "started": "2026-01-31 02:00:00.000",
        "test_case": "a/causal-lm/spyre-eager-float16",
        "model_name": "a",
        "task": "causal-lm",
        "target": "spyre",
        "mode": "eager",
        "dtype": "float16",
        "status": "failed",
        "verdict": "FAIL",
        "outcome": "crash",
        "stage": "run",
        "failure_category": "worker_crashed",
        "fail_message": "why",
        "duration": 0,
        "relative_l2": 0.01,
        "device_share": None,
        "expectations": "gating",
    }


def test_rows_say_whether_expectations_were_set_aside() -> None:
    """A known failure is FAIL in such a run: without the mode it would look like a regression."""
    validated = run(0, "a").model_copy(update={"expectations": ExpectationMode.VALIDATE})
    texts = statements(validated, [result("a", status=Status.FAIL)])
    assert [json.loads(text.partition("\n")[2])["expectations"] for text in texts[:2]] == ["validate", "validate"]


def test_a_model_is_verified_when_all_of_its_cases_pass() -> None:
    good = result("a", status=Status.PASS)
    late, early = (failing("a", OutcomeKind.COMPLETED, Stage.COMPARE), failing("a", OutcomeKind.TIMEOUT, Stage.LOAD))
    lost = result("b", status=Status.NOTRUN)
    found = rows("conformance_model_support", good, late, early, lost)
    assert [(row["model_name"], row["verified_on_spyre"], row["failure_category"]) for row in found] == [
        ("a", 0, "worker_timeout")
    ]
    (row,) = rows("conformance_model_support", good)
    assert (row["verified_on_spyre"], row["failure_category"], row["snapshot_date"]) == (1, "", "2026-01-31")
    assert rows("conformance_model_support", lost) == []


def test_hostile_text_stays_on_its_line() -> None:
    (row,) = rows("conformance_test_cases", failing("a", OutcomeKind.CRASH, Stage.RUN, HOSTILE))
    assert row["fail_message"] == HOSTILE.replace("\ud800", "?")
    (row,) = rows("conformance_test_cases", result("a", error=float("inf")))
    assert row["relative_l2"] is None


@pytest.fixture
def query(tmp_path: Path) -> Callable[[str], list[list[Any]]]:
    session = pytest.importorskip("chdb.session", reason="chdb is not installed: nox -s clickhouse")
    engine = session.Session(str(tmp_path / "engine"))

    def ask(sql: str) -> list[list[Any]]:
        text = str(engine.query(sql, "JSONCompactEachRow"))
        return [json.loads(line) for line in text.splitlines() if line]

    ask("CREATE DATABASE IF NOT EXISTS conformance ENGINE = Atomic")
    ask("USE conformance")
    return ask


def test_a_real_engine_takes_the_rows_twice_and_keeps_them_once(query: Callable[[str], list[list[Any]]]) -> None:
    hostile = failing("b", OutcomeKind.CRASH, Stage.RUN, HOSTILE)
    for table, column in ADDED.items():  # as a harness before that column left it
        name = column.partition(" ")[0]
        query(f"CREATE TABLE {table} ({' '.join(TABLES[table].split())}")
        query(f"ALTER TABLE {table} DROP COLUMN {name}")
    for _ in range(2):
        for statement in (*schema(), *statements(run(0, "a", "b"), [result("a", status=Status.PASS), hostile])):
            query(statement)
    cases = query(
        "SELECT model_name, status, failure_category, relative_l2 FROM conformance_test_cases FINAL ORDER BY 1"
    )
    assert cases == [["a", "passed", "", 0.01], ["b", "failed", "worker_crashed", 0.01]]
    (message,) = query("SELECT fail_message FROM conformance_test_cases FINAL WHERE model_name = 'b'")
    assert message == [HOSTILE.replace("\ud800", "?")]
    assert query("SELECT packages['torch'], finished FROM conformance_runs FINAL") == [["2.13.0", 1]]
    assert query("SELECT model_name, verified_on_spyre FROM conformance_model_support FINAL ORDER BY 1") == [
        ["a", 1],
        ["b", 0],
    ]
