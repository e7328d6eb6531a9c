"""Tests of the change report: grouping by cause, better and worse apart, the whole text."""

from __future__ import annotations

import subprocess
import sys

from harness.history import causes, changes, diff, tell
from harness.records import Status
from tests.history.script import environment, night, sample

A, B, C = (f"{name}/causal-lm/spyre-eager-float16" for name in "abc")
NEW_TORCH = environment(torch="2.14.0")


def test_the_report_of_a_night() -> None:
    runs = [
        night(0, sample(A), sample(B, sentence="x"), sample(C, status=Status.FAIL)),
        night(1, sample(A, status=Status.FAIL), sample(B, status=Status.FAIL), sample(C), env=NEW_TORCH),
    ]
    found = changes(runs[:1], runs[1])
    assert tell(found, runs) == (
        "# Changes of night-001\n"
        "\n"
        "2 worse, 1 better, 0 other.\n"
        "\n"
        "## Worse\n"
        "\n"
        "### regressed: 2 cases with torch 2.14.0\n"
        "\n"
        f"- `{A}`: passed, and now fails: outside_rule\n"
        f"- `{B}`: passed, and now fails: outside_rule\n"
        "- suspect: torch 2.13.0 -> 2.14.0: minor release of a package near the numbers\n"
        "\n"
        "## Better\n"
        "\n"
        f"### fixed: {C} with torch 2.14.0\n"
        "\n"
        f"- `{C}`: passes; it failed with outside_rule\n"
        "- suspect: torch 2.13.0 -> 2.14.0: minor release of a package near the numbers\n"
    )


def test_the_first_run_says_that_it_is() -> None:
    runs = [night(0, sample(A))]
    assert tell(changes([], runs[0]), runs) == (
        "# Changes of night-000\n\nNo baseline: this is the first run on x86_64 emulator.\n"
    )


def test_one_cause_keeps_its_key_over_nights_and_cases() -> None:
    runs = [
        night(0, sample(A), sample(B)),
        night(1, sample(A, status=Status.FAIL), sample(B), env=NEW_TORCH),
        night(2, sample(A, status=Status.FAIL), sample(B, status=Status.FAIL), env=environment(torch="2.15.0")),
    ]
    first = causes(changes(runs[:1], runs[1]), runs[:2])
    again = causes(diff(runs[0], runs[1]), runs[:2])
    other = causes(changes(runs[:2], runs[2]), runs)
    assert [cause.key for cause in first] == [cause.key for cause in again]
    assert {cause.key for cause in first}.isdisjoint(cause.key for cause in other)


def test_long_lists_are_counted() -> None:
    names = [f"m{i:03}/causal-lm/spyre-eager-float16" for i in range(50)]
    runs = [
        night(0, *(sample(name) for name in names)),
        night(1, *(sample(name, status=Status.FAIL) for name in names), env=NEW_TORCH),
    ]
    text = tell(changes(runs[:1], runs[1]), runs)
    assert "### regressed: 50 cases with torch 2.14.0" in text
    assert "- and 30 more\n" in text


def test_history_loads_neither_torch_nor_tables() -> None:
    heavy = "('torch', 'pandas', 'pyarrow', 'numpy')"
    code = f"import sys, harness.history; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
