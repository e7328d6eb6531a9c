"""What is printed cannot steer a terminal, whoever wrote it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import store
from harness.cli import app
from harness.records import Status
from harness.terminal import harmless
from tests.stored_runs import write_run

HOSTILE = "\x1b]0;owned\x07\x1b[2J \x9b31m \u202etxt.exe \ud800 \r"
SHOWN = "\\u001b]0;owned\\u0007\\u001b[2J \\u009b31m \\u202etxt.exe \\ud800 \\u000d"


def test_what_steers_a_terminal_is_shown_and_the_rest_stays() -> None:
    assert harmless(HOSTILE) == SHOWN
    plain = "two\tcolumns\nand lines: ä 漢 \N{GRINNING FACE}"
    assert harmless(plain) == plain
    text = json.dumps({HOSTILE: HOSTILE}, ensure_ascii=False)
    assert json.loads(harmless(text)) == {HOSTILE: HOSTILE}


@pytest.mark.parametrize("words", [["diff", "before", "run"], ["diff", "before", "run", "--json"], ["gate", "run"]])
def test_what_a_stored_run_says_does_not_reach_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "before", {"a": Status.PASS})
    write_run(tmp_path / "run", {HOSTILE.replace("\ud800", ""): Status.FAIL})
    CliRunner().invoke(app, ["baseline", "update", "before", "--baseline", "known"])
    said = CliRunner().invoke(app, [*words, *(["--against", "known"] if words[0] == "gate" else [])]).output
    assert "owned" in said
    assert all(one.isprintable() or one == "\n" for one in said)


def test_run_ids_are_no_paths(tmp_path: Path) -> None:
    """They name the files of an index."""
    run = write_run(tmp_path / "run", {"a": Status.PASS})
    path = run / store.RUN_FILE
    for name in ("../../escaped", ".hidden", "a/b", "a\nb", "", "\\ud800"):
        path.write_text(path.read_text().replace("night-000", name.replace("\n", "\\n")))
        done = CliRunner().invoke(app, ["history", "add", str(run), "--index", str(tmp_path / "index")])
        assert isinstance(done.exception, store.read.StoredDataError), name
        path.write_text(path.read_text().replace(f'"run_id": "{name}"'.replace("\n", "\\n"), '"run_id": "night-000"'))
    assert not list(tmp_path.rglob("*escaped*"))
