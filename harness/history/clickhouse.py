"""Results for teams that keep them in ClickHouse: tables, rows and the words of the Spyre test projects.

Only SQL text is made here, so any client executes it: `clickhouse-connect`'s ``client.command``, or chdb's
``session.query``. Statements can be sent again: rows of one key replace one another.

Column names and failure categories are those of hf-adapters' weekly scan (table
``generative_model_spyre_support``, file ``tests/spyre/weekly_generation/failure_categories.py``), test
statuses those of torch-spyre's ``v2_schema.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.history.views import raw_error
from harness.records import CaseResult, OutcomeKind, Role, Run, Stage, Status

FAILURE_CATEGORY: Mapping[OutcomeKind, str] = {
    OutcomeKind.COMPLETED: "verification_failed",
    OutcomeKind.UNSUPPORTED_OP: "test_execution_exception",
    OutcomeKind.COMPILE_ERROR: "test_execution_exception",
    OutcomeKind.RUNTIME_ERROR: "test_execution_exception",
    OutcomeKind.DEVICE_OUT_OF_MEMORY: "test_execution_exception",
    OutcomeKind.HOST_OUT_OF_MEMORY: "test_execution_exception",
    OutcomeKind.DEVICE_ERROR: "hardware_exception",
    OutcomeKind.TIMEOUT: "worker_timeout",
    OutcomeKind.CRASH: "worker_crashed",
    OutcomeKind.KILLED: "worker_crashed",
    OutcomeKind.INVALID_CHECKPOINT: "misformed_hf_failed",
    OutcomeKind.INVALID_REFERENCE: "cpu_generate_failed",
    OutcomeKind.NONDETERMINISTIC: "cpu_generate_failed",
    OutcomeKind.NOT_EXERCISED: "test_execution_exception",
    OutcomeKind.NOTHING_COMPARED: "test_execution_exception",
    OutcomeKind.HARNESS_FAULT: "test_execution_exception",
    OutcomeKind.DOES_NOT_FIT: "model_too_large",
    OutcomeKind.UNSUPPORTED_ARCHITECTURE: "unsupported_checkpoint",
}
"""The category of a case that does not pass. NOTRUN and excluded cases have none there: they make no row in
``conformance_model_support``, since infra says nothing about a model."""

TEST_STATUS: Mapping[Status, str] = {
    Status.PASS: "passed",
    Status.FAIL: "failed",
    Status.ERROR: "error",
    Status.SKIP: "skipped",
    Status.NOTRUN: "skipped",
    Status.XFAIL: "xfail",
    Status.XPASS: "xpass",
}

TABLES: Mapping[str, str] = {
    "conformance_runs": """
        run_id String, started DateTime64(3, 'UTC'), profile String, machine LowCardinality(String),
        device LowCardinality(String), commit String, packages Map(String, String), finished UInt8,
        expectations LowCardinality(String)
    ) ENGINE = ReplacingMergeTree ORDER BY (started, run_id)""",
    "conformance_test_cases": """
        run_id String, started DateTime64(3, 'UTC'), test_case String, model_name String,
        task LowCardinality(String), target LowCardinality(String), mode LowCardinality(String),
        dtype LowCardinality(String), status LowCardinality(String), verdict LowCardinality(String),
        outcome LowCardinality(String), stage LowCardinality(String),
        failure_category LowCardinality(String), fail_message String, duration Float64,
        relative_l2 Nullable(Float64), device_share Nullable(Float64), expectations LowCardinality(String)
    ) ENGINE = ReplacingMergeTree ORDER BY (test_case, started, run_id)""",
    "conformance_model_support": """
        model_name String, snapshot_date Date, family LowCardinality(String),
        architecture LowCardinality(String), parameters_number UInt64, verified_on_cpu UInt8,
        verified_on_spyre UInt8, failure_category LowCardinality(String), error String
    ) ENGINE = ReplacingMergeTree ORDER BY (model_name, snapshot_date)""",
}


ADDED: Mapping[str, str] = dict.fromkeys(
    ("conformance_runs", "conformance_test_cases"), "expectations LowCardinality(String)"
)
"""Columns that tables of an earlier harness lack. Rows without one are of gating runs."""


def schema() -> list[str]:
    """Return the statements that create the tables, or what they lack, where they are absent."""
    create = [f"CREATE TABLE IF NOT EXISTS {name} ({' '.join(body.split())}" for name, body in TABLES.items()]
    return [*create, *(f"ALTER TABLE {name} ADD COLUMN IF NOT EXISTS {column}" for name, column in ADDED.items())]


def statements(run: Run, results: Sequence[CaseResult]) -> list[str]:
    """Return the statements that insert a run: one per table that gets rows."""
    rows = {
        "conformance_runs": [_run_row(run)],
        "conformance_test_cases": [_case_row(run, result) for result in results],
        "conformance_model_support": list(_support_rows(run, results)),
    }
    return [_insert(table, found) for table, found in rows.items() if found]


def _insert(table: str, rows: Sequence[Mapping[str, Any]]) -> str:
    # JSON leaves nothing to quote by hand, so hostile names and messages stay data. ClickHouse reads NaN and
    # infinities as null from JSON.
    lines = "\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
    return f"INSERT INTO {table} FORMAT JSONEachRow\n{lines}\n"


def _run_row(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "started": _time(run),
        "profile": run.profile or "",
        "machine": run.environment.machine,
        "device": run.environment.device.get("kind", "none"),
        "commit": run.environment.commit or "",
        "packages": {package.name: package.version for package in run.environment.packages},
        "finished": int(run.finished is not None),
        "expectations": run.expectations,
    }


def _case_row(run: Run, result: CaseResult) -> dict[str, Any]:
    case, verdict = result.case, result.verdict
    passed = verdict.status in (Status.PASS, Status.XPASS)
    candidate = result.observations.get(Role.CANDIDATE)
    error = raw_error(result.comparison) if result.comparison else None
    return {
        "run_id": run.run_id,
        "started": _time(run),
        "test_case": case.id,
        "model_name": case.model,
        "task": case.task,
        "target": case.target,
        "mode": case.mode,
        "dtype": case.dtype,
        "status": TEST_STATUS[verdict.status],
        "verdict": verdict.status,
        "outcome": result.outcome.kind,
        "stage": result.outcome.stage or "",
        "failure_category": "" if passed else FAILURE_CATEGORY.get(result.outcome.kind, ""),
        "fail_message": "" if passed else _text(verdict.sentence or result.outcome.message),
        "duration": sum(result.seconds.values()),
        "relative_l2": error if error is not None and abs(error) < float("inf") else None,
        "device_share": candidate.device.device_share if candidate and candidate.device else None,
        "expectations": run.expectations,
    }


def _support_rows(run: Run, results: Sequence[CaseResult]) -> Iterator[dict[str, Any]]:
    """Yield a row per model on ``spyre``: verified when all of its cases there pass, worst failure named."""
    models: dict[str, list[CaseResult]] = {}
    for result in results:
        silent = result.verdict.status is Status.NOTRUN or result.outcome.kind is OutcomeKind.EXCLUDED
        if result.case.target == "spyre" and not silent:
            models.setdefault(result.case.model, []).append(result)
    for model, found in models.items():
        bad = [one for one in found if one.verdict.status not in (Status.PASS, Status.XPASS)]
        worst = min(bad, key=_reached, default=None)
        case, checkpoint = found[0].case, found[0].checkpoint
        yield {
            "model_name": model,
            "snapshot_date": f"{run.started:%Y-%m-%d}",
            "family": case.family or "",
            "architecture": (checkpoint.architecture if checkpoint else None) or "",
            "parameters_number": (checkpoint.parameters if checkpoint else None) or case.parameters or 0,
            "verified_on_cpu": int(any(Role.REFERENCE in one.observations for one in found)),
            "verified_on_spyre": int(not bad),
            "failure_category": FAILURE_CATEGORY.get(worst.outcome.kind, "") if worst else "",
            "error": _text(worst.verdict.sentence or worst.outcome.message) if worst else "",
        }


def _reached(result: CaseResult) -> int:
    """Return how far a case came: the failure at the earliest stage is the worst."""
    stages = list(Stage)
    return stages.index(result.outcome.stage) if result.outcome.stage else -1


def _text(message: str) -> str:
    """Return a message as the incumbents keep it: at most 8192 characters, no half characters."""
    return message.encode("utf-8", "replace").decode()[:8192]


def _time(run: Run) -> str:
    return f"{run.started:%Y-%m-%d %H:%M:%S}.{run.started.microsecond // 1000:03}"
