"""Stored runs against one another, by the commands that people and CI type."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import condensed, matrix, nightly, store
from harness.cli import app
from harness.damage import Warnings
from harness.errors import UsageError
from harness.records import ChangeKind, Status
from tests.stored_runs import environment, write_run

PASS, FAIL, XFAIL = Status.PASS, Status.FAIL, Status.XFAIL


def conformance(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


@pytest.fixture
def two_nights(tmp_path: Path) -> tuple[Path, Path]:
    one = write_run(tmp_path / "one", {"a": PASS, "b": FAIL, "c": PASS}, 0)
    upgraded = environment("5.25.0", cores=4)
    other = write_run(tmp_path / "other", {"a": FAIL, "b": PASS, "d": PASS}, 1, env=upgraded)
    return one, other


def test_diff_tells_better_and_worse_apart_and_ranks_what_differs(two_nights: tuple[Path, Path]) -> None:
    status, text = conformance("diff", *two_nights)
    assert status == 1
    lines = [line.split(":")[0].rstrip() for line in text.splitlines() if line]
    assert lines == [
        "before  night-000  x86_64 emulator",
        "after   night-001  x86_64 emulator",
        "2 worse, 1 better, 1 other",
        "Worse (2)",
        "  gone              c/causal-lm/spyre-eager-float16",
        "  regressed         a/causal-lm/spyre-eager-float16",
        "Better (1)",
        "  fixed             b/causal-lm/spyre-eager-float16",
        "Other (1)",
        "  new               d/causal-lm/spyre-eager-float16",
        "What differs, likeliest first",
        "  0.68  transformers 5.24.0 -> 5.25.0",
        "  0.10  cores 2 -> 4",
    ]


def test_diff_for_programs_says_the_same(two_nights: tuple[Path, Path]) -> None:
    status, text = conformance("diff", *two_nights, "--json")
    tree = json.loads(text)
    assert status == 1
    assert tree["counts"] == {"worse": 2, "better": 1, "neutral": 1}
    assert [change["kind"] for change in tree["changes"]] == ["gone", "regressed", "new", "fixed"]
    assert [suspect["name"] for suspect in tree["suspects"]] == ["transformers", "cores"]


def test_a_run_does_not_differ_from_itself(two_nights: tuple[Path, Path]) -> None:
    status, text = conformance("diff", two_nights[0], two_nights[0])
    assert status == 0
    assert text.splitlines()[2:] == [
        "0 worse, 0 better, 0 other",
        "",
        "Nothing recorded differs between the two.",
    ]


def test_a_baseline_begins_grows_and_is_updated_by_the_smallest_diff(tmp_path: Path) -> None:
    folder = tmp_path / "baselines"
    first = write_run(tmp_path / "first", {"a": PASS, "b": XFAIL}, 0)
    assert conformance("baseline", "update", first, "--baseline", folder)[0] == 0
    path = folder / "nightly-x86_64-emulator.tsv"
    before = path.read_text()
    assert before.splitlines() == [
        "# baseline 1 nightly x86_64 emulator",
        "# case\tstatus\tfailure\terror",
        "a/causal-lm/spyre-eager-float16\tPASS\t-\t-",
        "b/causal-lm/spyre-eager-float16\tXFAIL\toutside_rule\t-",
    ]
    second = write_run(tmp_path / "second", {"a": PASS, "b": PASS}, 1)
    status, patch = conformance("baseline", "update", second, "--baseline", folder)
    assert status == 0
    changed = [line for line in patch.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == [
        "-b/causal-lm/spyre-eager-float16\tXFAIL\toutside_rule\t-",
        "+b/causal-lm/spyre-eager-float16\tPASS\t-\t-",
    ]
    assert conformance("baseline", "update", second, "--baseline", folder)[1] == f"{path}: nothing to change\n"


def test_the_patch_is_one_that_git_applies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = Path("reports/baselines")
    nightly.update(nightly.view(write_run(tmp_path / "first", {"a": PASS}, 0), Warnings()), place).write()
    subprocess.run(["git", "init", "-q"], check=True)
    update = nightly.update(nightly.view(write_run(tmp_path / "second", {"a": PASS, "b": PASS}, 1), Warnings()), place)
    assert update.path.read_text() != update.text
    subprocess.run(["git", "apply", "-"], input=update.patch, text=True, check=True)
    assert update.path.read_text() == update.text


def test_better_and_worse_are_not_mixed(tmp_path: Path) -> None:
    folder = tmp_path / "baselines"
    nightly.update(nightly.view(write_run(tmp_path / "first", {"a": PASS, "b": FAIL}, 0), Warnings()), folder).write()
    second = nightly.view(write_run(tmp_path / "second", {"a": FAIL, "b": PASS}, 1), Warnings())
    with pytest.raises(UsageError, match="better in 1 cases and worse in 1"):
        nightly.update(second, folder)
    text = nightly.update(second, folder, "better").text
    assert [line.split("\t")[1] for line in text.splitlines()[2:]] == ["PASS", "PASS"]


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ({"planned": ("missing",)}, "is incomplete: 1 planned cases have no result"),
        ({"finished": False}, "is incomplete: 0 planned"),
        ({"selection": "--shard 1/3"}, "is a part of its profile only"),
    ],
)
def test_a_run_that_shows_a_part_is_no_baseline(tmp_path: Path, rest: dict[str, object], why: str) -> None:
    run = write_run(tmp_path / "run", {"a": PASS}, **rest)
    with pytest.raises(UsageError, match=why):
        conformance("baseline", "update", run, "--baseline", tmp_path / "baselines")
    assert not (tmp_path / "baselines").exists()


def test_a_gate_accepts_what_is_known_and_refuses_what_differs(tmp_path: Path) -> None:
    folder = tmp_path / "baselines"
    first = write_run(tmp_path / "first", {"a": PASS, "b": XFAIL}, 0)
    conformance("baseline", "update", first, "--baseline", folder)
    status, text = conformance("gate", first, "--against", folder, "--out", tmp_path / "gate.md")
    assert (status, text.splitlines()[0]) == (0, "# Release gate: ACCEPTED")
    assert (tmp_path / "gate.md").read_text() == text
    second = write_run(tmp_path / "second", {"a": FAIL, "b": XFAIL}, 1)
    status, text = conformance("gate", second, "--against", folder / "nightly-x86_64-emulator.tsv")
    assert (status, text.splitlines()[0]) == (1, "# Release gate: REFUSED")
    assert text.count("`a/causal-lm/spyre-eager-float16`") == 2  # the requirement, and the baseline


def test_a_policy_waives_and_its_waivers_expire(tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", {"a": PASS, "b": FAIL}, 0)
    conformance("baseline", "update", first, "--baseline", tmp_path / "baselines")
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "version: 1\nrequire:\n  - cases: '*'\nwaivers:\n"
        "  - {cases: 'b/*', owner: compiler team, reason: lowered in the next release, expires: 2026-03-31}\n"
    )
    answers = [nightly.gate(first, tmp_path / "baselines", policy, date(2026, 3, day), Warnings()) for day in (30, 31)]
    assert [answer.accepted for answer in answers] == [True, False]


def test_a_gate_without_a_baseline_says_how_to_make_one(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"a": PASS})
    with pytest.raises(UsageError, match="conformance baseline update RUN_DIR"):
        conformance("gate", run, "--against", tmp_path)


def test_an_index_answers_per_case(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"{n}", {"a": one}, n) for n, one in enumerate((PASS, FAIL))]
    index = tmp_path / "index"
    assert conformance("history", "add", *reversed(runs), "--index", index) == (
        0,
        f"{index}: night-001, 1 cases\n{index}: night-000, 1 cases\n",
    )
    assert conformance("history", "case", "a/causal-lm/spyre-eager-float16", "--index", index)[1].splitlines() == [
        "night-000  PASS           -       - s",
        "night-001  FAIL           -       - s  FAIL: as planted",
    ]
    with pytest.raises(UsageError, match="has no run of b"):
        conformance("history", "case", "b", "--index", index)


def test_a_site_of_several_nights_shows_what_changed_in_each(tmp_path: Path) -> None:
    nights = [{"a": PASS, "b": PASS}, {"a": FAIL, "b": PASS}, {"a": FAIL, "b": FAIL}]
    runs = [write_run(tmp_path / f"{n}", statuses, n) for n, statuses in enumerate(nights)]
    facts = nightly.publish([runs[2], runs[0], runs[1], runs[2]], tmp_path / "site")
    assert (facts.run_id, facts.runs, facts.cases) == ("night-002", 3, 2)
    feed = (tmp_path / "site" / "feed.xml").read_text()
    assert feed.count("<entry>") == 2
    kept = [one for run in runs if (one := condensed.kept(run))]
    found = [(c.run, c.kind, c.case[0]) for c in nightly.all_changes(kept)]
    assert found == [("night-001", ChangeKind.REGRESSED, "a"), ("night-002", ChangeKind.REGRESSED, "b")]


def test_the_next_night_reads_no_old_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [write_run(tmp_path / f"{n}", {"a": PASS if n < 2 else FAIL}, n) for n in range(4)]
    nightly.publish(runs[:3], tmp_path / "site")
    read = []
    whole = store.read_run
    monkeypatch.setattr(store, "read_run", lambda directory: read.append(directory.name) or whole(directory))
    facts = nightly.publish(runs, tmp_path / "site")
    assert (read, facts.runs, facts.run_id) == (["3"], 4, "night-003")
    nightly.publish(runs[:3], tmp_path / "other")
    assert read == ["3", "2"]  # the newest is shown in full
    fresh = [write_run(tmp_path / "fresh" / f"{n}", {"a": PASS if n < 2 else FAIL}, n) for n in range(3)]
    nightly.publish(fresh, tmp_path / "another")
    for name in ("changes", "run-0", "run-1", "matrix", "ops"):
        path = f"data/{name}.js"
        assert (tmp_path / "other" / path).read_bytes() == (tmp_path / "another" / path).read_bytes()


def test_a_damaged_run_is_reported_and_told_of(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"a": PASS, "b": PASS})
    with (run / store.CASES_FILE).open("ab") as lines:
        lines.write(b'{"case": 1}\n\xff\xfe\n{"case": {"id')
    for _ in range(2):  # read, then kept
        done = CliRunner().invoke(app, ["report", str(run), "--out", str(tmp_path / "site")])
        assert (done.exit_code, done.stdout) == (1, f"report: {tmp_path / 'site' / 'index.html'}\n")
        told, *more = done.stderr.splitlines()
        assert more == []
        assert told.startswith(
            f"conformance: warning: {run}: 3 places are damaged and left out, the rest counts: cases.jsonl:3: "
        )
        assert "; cases.jsonl:4: " in told
        assert told.endswith("; cases.jsonl:5: torn last line, written when the run was killed")
    assert "2 of 2 planned cases ended" in (tmp_path / "site" / "index.html").read_text()
    assert conformance("report", write_run(tmp_path / "whole", {"a": FAIL}), "--out", tmp_path / "site")[0] == 0


def test_every_command_says_what_is_damaged_and_none_ends_with_success(tmp_path: Path) -> None:
    whole = write_run(tmp_path / "whole", {"a": PASS})
    run = write_run(tmp_path / "run", {"a": PASS})
    with (run / store.CASES_FILE).open("ab") as lines:
        lines.write(b'{"case": 1}\n')
    baselines = tmp_path / "baselines"
    conformance("baseline", "update", whole, "--baseline", baselines)
    refused = f"conformance: warning: {run}: 1 place is damaged and left out, the rest counts: cases.jsonl:2: "
    for words, status in (
        (["report", run, "--out", tmp_path / "site"], 1),
        (["diff", whole, run], 1),
        (["diff", run, whole, "--json"], 1),
        (["gate", run, "--against", baselines], 1),
        (["history", "add", run, whole, "--index", tmp_path / "index"], 1),
    ):
        done = CliRunner().invoke(app, list(map(str, words)))
        assert (done.exit_code, done.stderr.count("\n")) == (status, 1), words
        assert done.stderr.startswith(refused), words
    gate = CliRunner().invoke(app, ["gate", str(run), "--against", str(baselines)]).stdout
    assert gate.startswith("# Release gate: REFUSED\n")
    assert "- the run is damaged: cases.jsonl:2: " in gate
    with pytest.raises(UsageError, match=r"night-000 is damaged: cases\.jsonl:2: .*; it cannot become the baseline"):
        conformance("baseline", "update", run, "--baseline", baselines)


def test_report_served_is_made_anew_when_the_run_grows_and_ends_with_the_interrupt(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"a": PASS}, 0)
    command = [sys.executable, "-m", "harness", "report", str(run), "--out", str(tmp_path / "site"), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline().strip() for _ in range(2)]
            assert lines[0] == f"report: {tmp_path / 'site' / 'index.html'}"
            assert b"1 PASS" in _page(lines[1])
            write_run(run, {"a": FAIL}, 0)
            deadline = time.monotonic() + 60
            while b"1 FAIL" not in _page(lines[1]):
                assert time.monotonic() < deadline, "the page was not made anew"
                time.sleep(1)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def _page(address: str) -> bytes:
    with urllib.request.urlopen(f"{address}index.html", timeout=30) as answer:
        text: bytes = answer.read()
        return text


def test_report_on_a_port_that_is_taken(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"a": PASS}, 0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"--port {port}: .*choose another, or 0 for a free one"):
            conformance("report", run, "--out", tmp_path / "site", "--serve", "--port", port)


def test_reproducers_of_a_run_are_offered_by_its_report(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"a": FAIL}, 0)
    case = "a/causal-lm/spyre-eager-float16"
    folder = run / nightly.REPRODUCERS / matrix.slug(case)
    folder.mkdir(parents=True)
    (folder / "reproduce.py").write_text("print('defect')\n")
    nightly.publish([run], tmp_path / "site")
    assert any("defect" in path.read_text(errors="ignore") for path in (tmp_path / "site").rglob("*.py")) or any(
        path.suffix == ".zip" for path in (tmp_path / "site").rglob("*")
    )
