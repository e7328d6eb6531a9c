"""CSV, JSON and Parquet hold the same rows, unrounded, with NaN and infinity as such."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest
from pyarrow import parquet

from harness.report import csv_table, json_table, parquet_table
from harness.report.rows import COLUMNS, rows
from tests.report.synthetic import HOSTILE, Spec, runs


@pytest.fixture
def table():
    one = runs(Spec(models=1, runs=1, hostile=True))[0]
    first, *rest = rows(one.run.run_id, one.run.plan, one.results)
    return [replace(first, error_ratio=math.nan, relative_l2=math.inf, cosine=0.1 + 0.2), *rest]


def test_csv_reads_back(table):
    found = list(csv.DictReader(io.StringIO(csv_table(table))))
    assert tuple(found[0]) == COLUMNS
    assert [row["case_id"] for row in found[:3]] == [row.case_id for row in table[:3]]
    assert (found[0]["error_ratio"], found[0]["relative_l2"], found[0]["cosine"]) == (
        "NaN",
        "Infinity",
        "0.30000000000000004",
    )


def test_csv_starts_no_formula(table):
    models = {row["model"] for row in csv.DictReader(io.StringIO(csv_table(table)))}
    assert "'=HYPERLINK(1)" in models
    assert not any(model.startswith("=") for model in models)


def test_json_is_strict_and_keeps_names(table):
    found = json.loads(json_table(table), parse_constant=pytest.fail)
    assert (found[0]["error_ratio"], found[0]["relative_l2"]) == ("NaN", "Infinity")
    assert {row["model"] for row in found} >= set(HOSTILE)
    assert len(found) == len(table)


def test_parquet_is_typed(table, tmp_path):
    parquet_table(table, tmp_path / "cases.parquet")
    found = parquet.read_table(tmp_path / "cases.parquet")
    assert tuple(found.column_names) == COLUMNS
    types = {name: str(found.schema.field(name).type) for name in ("case_id", "error_ratio", "elements", "started")}
    assert types == {
        "case_id": "string",
        "error_ratio": "double",
        "elements": "int64",
        "started": "timestamp[us, tz=UTC]",
    }
    assert math.isnan(found["error_ratio"][0].as_py())
