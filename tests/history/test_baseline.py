"""Tests of the baseline: its text, both directions of the gate, the smallest diff."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import HarnessError, UsageError
from harness.history import Baseline, RunView, Sample, baseline
from harness.records import ExpectationMode, OutcomeKind, Status
from tests.history.script import night, sample

A, B, C = (f"{name}/causal-lm/spyre-eager-float16" for name in "abc")
FAIL = {"status": Status.FAIL, "error": 0.9}


def run(*samples: Sample, **rest: object) -> RunView:
    return night(1, *samples, **rest)


def accepted(*samples: Sample) -> Baseline:
    return baseline.update(None, run(*samples))


def differences(known: Baseline, now: RunView) -> list[tuple[str, str, str]]:
    return [(change.case[0], change.kind.value, change.direction) for change in baseline.against(known, now)]


def test_the_text_and_back(tmp_path: Path) -> None:
    known = accepted(
        sample(B, error=0.012345),
        sample(A, status=Status.XFAIL, kind=OutcomeKind.CRASH, error=None),
        sample(C, status=Status.SKIP, kind=OutcomeKind.DOES_NOT_FIT),
        sample("d", status=Status.NOTRUN),
    )
    assert known.text() == (
        "# baseline 1 nightly x86_64 emulator\n"
        "# case\tstatus\tfailure\terror\n"
        f"{A}\tXFAIL\tcrash\t-\n"
        f"{B}\tPASS\t-\t1.2e-02\n"
        f"{C}\tSKIP\tdoes_not_fit\t-\n"
    )
    path = tmp_path / baseline.file_name("nightly", known.lane)
    assert path.name == "nightly-x86_64-emulator.tsv"
    path.write_text(known.text())
    assert baseline.read(path) == known


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: is no baseline; the first line is '# baseline 1 PROFILE LANE'"),
        ("# baseline 2 nightly x86_64 emulator\n", ":1: format 2 is newer than this harness knows"),
        ("# baseline 1 nightly x86_64 emulator\n<<<<<<< HEAD\n", ":2: '<<<<<<< HEAD' is no line of a baseline"),
        ("# baseline 1 n x e\na\tPASS\t-\t-\na\tPASS\t-\t-\n", ":3: a is there twice; keep one line"),
        ("# baseline 1 n x e\na\tPASS\t-\tmuch\n", ":2: 'much' is no number"),
        ("# baseline 1 n x e\na\tNOTRUN\t-\t-\n", ":2: 'a\\tNOTRUN\\t-\\t-' is no line of a baseline"),
    ],
)
def test_what_is_no_baseline(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "b.tsv"
    path.write_text(text)
    with pytest.raises(HarnessError) as caught:
        baseline.read(path)
    assert f"b.tsv{said}" in str(caught.value)
    with pytest.raises(UsageError, match="does not exist; `conformance baseline update RUN_DIR` writes it"):
        baseline.read(tmp_path / "none.tsv")


def test_both_directions_count() -> None:
    known = accepted(sample(A), sample(B, **FAIL), sample(C, error=0.01))
    assert differences(known, run(sample(A), sample(B, **FAIL), sample(C, error=0.012))) == []
    now = run(sample(A, **FAIL), sample(B), sample(C, error=0.02))
    assert differences(known, now) == [
        ("a", "regressed", "worse"),
        ("c", "drifted", "worse"),
        ("b", "fixed", "better"),
    ]
    lost = run(sample(A, status=Status.NOTRUN), sample(B, status=Status.ERROR), sample(C, error=0.001))
    assert differences(known, lost) == [("c", "drifted", "better")]
    assert differences(known, run(sample(A), sample(B, **FAIL))) == [("c", "gone", "worse")]
    assert differences(known, run(sample(A), selection="--model a")) == []


def test_a_change_of_kind_or_of_expectation_is_a_difference() -> None:
    known = accepted(sample(A, **FAIL), sample(B, status=Status.XFAIL))
    crash = sample(A, status=Status.FAIL, kind=OutcomeKind.CRASH)
    assert differences(known, run(crash, sample(B, status=Status.XPASS))) == [
        ("a", "regressed", "worse"),
        ("b", "stale_expectation", "better"),
    ]


def test_slow_creep_is_caught() -> None:
    known = accepted(sample(A, error=0.01))
    errors = [0.01 * 1.02**night for night in range(20)]
    seen = [bool(differences(known, run(sample(A, error=error)))) for error in errors]
    assert seen == [False] * 12 + [True] * 8


def test_an_update_changes_the_lines_that_differ_and_no_others() -> None:
    known = accepted(sample(A, error=0.01), sample(B, error=0.01), sample(C, **FAIL))
    now = run(sample(A, error=0.0119), sample(B, error=0.005), sample(C, **FAIL))
    new = baseline.update(known, now)
    assert baseline.patch("nightly.tsv", known, new) == (
        "--- a/nightly.tsv\n"
        "+++ b/nightly.tsv\n"
        "@@ -1,5 +1,5 @@\n"
        " # baseline 1 nightly x86_64 emulator\n"
        " # case\tstatus\tfailure\terror\n"
        f" {A}\tPASS\t-\t1.0e-02\n"
        f"-{B}\tPASS\t-\t1.0e-02\n"
        f"+{B}\tPASS\t-\t5.0e-03\n"
        f" {C}\tFAIL\toutside_rule\t9.0e-01\n"
    )
    assert baseline.patch("nightly.tsv", new, baseline.update(new, now)) == ""


def test_git_applies_the_patch(tmp_path: Path) -> None:
    known = accepted(sample(A), sample(B))
    new = baseline.update(known, run(sample(A, **FAIL), sample(B)))
    for old, patch in ((None, baseline.patch("b.tsv", None, known)), (known, baseline.patch("b.tsv", known, new))):
        assert (tmp_path / "b.tsv").exists() is (old is not None)
        subprocess.run(["git", "apply", "-"], input=patch, text=True, check=True, cwd=tmp_path)
    assert baseline.read(tmp_path / "b.tsv") == new


def test_better_and_worse_are_not_mixed() -> None:
    known = accepted(sample(A), sample(B, **FAIL))
    now = run(sample(A, **FAIL), sample(B), sample(C))
    with pytest.raises(UsageError, match="better in 1 cases and worse in 1; accept them apart"):
        baseline.update(known, now)
    better = baseline.update(known, now, accept="better")
    assert {name[0]: line.status for name, line in better.lines.items()} == {
        "a": Status.PASS,
        "b": Status.PASS,
        "c": Status.PASS,
    }
    assert baseline.update(better, now, accept="worse").lines[A].status is Status.FAIL


def test_what_cannot_become_the_baseline() -> None:
    known = accepted(sample(A))
    for now, said in [
        (run(sample(A), selection="-k a"), "is a part of its profile only"),
        (run(sample(A), planned=frozenset({A, B})), "is incomplete: 1 planned cases have no result"),
        (run(sample(A), finished=False), "is incomplete"),
        (run(sample(A), expectations=ExpectationMode.VALIDATE), r"set expectations aside \(validate\)"),
        (run(sample(A, flags=("drilled",))), "was made with faults injected on purpose"),
        (run(sample(A), profile="smoke"), "is of smoke on x86_64 emulator, the baseline of nightly"),
        (replace(run(sample(A)), lane="s390x emulator"), "is of nightly on s390x emulator"),
    ]:
        with pytest.raises(UsageError, match=said):
            baseline.update(known, now)


def test_a_case_without_result_keeps_its_line_and_a_gone_one_loses_it() -> None:
    known = accepted(sample(A), sample(B))
    assert baseline.update(known, run(sample(A, status=Status.NOTRUN), sample(B))) == known
    assert set(baseline.update(known, run(sample(A))).lines) == {A}
