"""The summary is bounded, worst first, and renders nothing that a model wrote."""

from __future__ import annotations

from harness.records import Status
from harness.report import markdown_summary
from tests.report.synthetic import HOSTILE_TEXT, Spec, runs


def test_a_small_summary_whole():
    one = runs(Spec(models=1, runs=1, configurations=1, all_pass=True))[0]
    seen = next(iter(one.results))
    verdict = seen.verdict.model_copy(update={"sentence": "Error 2.0 times the control's.", "findings": ()})
    text = markdown_summary(one.run, [seen.model_copy(update={"verdict": verdict, "comparison": None})])
    assert text == (
        "## Conformance: The only case behaved as expected: 1 PASS.\n\n"
        "**1** PASS\n\n\n"
        "Run `20261101T030000Z-000000`\n\n"
        "| Status | Case | Error ratio | On device | What happened |\n|---|---|---:|---:|---|\n"
        "| PASS | `granite-1.0-0b/causal-lm/spyre-eager-float16` | – | 26.6 % | Error 2.0 times the control's. |\n"
    )


def test_worst_first_and_within_the_limit():
    one = runs(Spec(models=60, runs=1))[0]
    text = markdown_summary(one.run, one.results, limit=5000)
    assert len(text.encode()) <= 5000
    statuses = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")][1:]
    order = ["ERROR", "FAIL", "XPASS", "NOTRUN", "XFAIL", "SKIP", "PASS"]
    assert statuses == sorted(statuses, key=order.index)
    assert text.endswith(" more cases are in the report.\n")


def test_hostile_text_neither_renders_nor_breaks_the_table():
    one = runs(Spec(models=0, runs=1, hostile=True))[0]
    bad = [
        seen.model_copy(
            update={"verdict": seen.verdict.model_copy(update={"sentence": HOSTILE_TEXT, "status": Status.FAIL})}
        )
        for seen in one.results
    ]
    text = markdown_summary(one.run, bad)
    table = [line for line in text.splitlines() if line.startswith("| FAIL")]
    assert len(table) == len(bad)
    outside_code = "".join(part for line in table for part in line.split("`")[::2])
    assert "<" not in outside_code
    assert {line.replace("\\|", "").count("|") for line in table} == {6}
