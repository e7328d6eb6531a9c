"""Options of a run that cannot be meant are refused before any work."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.errors import UsageError
from harness.options import add_options, settings_from
from harness.settings import Settings


def settings(*words: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_options(parser)
    option = parser.parse_args(words, argparse.Namespace(keyword=""))
    return settings_from(cast("Any", SimpleNamespace(option=option)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--memory inf", "--memory inf: give a number of GiB above 0"),
        ("--memory nan", "--memory nan: give a number of GiB above 0"),
        ("--stall nan", "--retries takes 0 or more, --stall more than 0 seconds"),
        ("--resume", "--resume goes on with the run in --run-dir; name it"),
        ("--resume --run-dir none", "--run-dir none: holds no run to --resume; leave that out to begin one there"),
        ("--run-dir file", "--run-dir file: is a file; name a folder"),
        ("--run-dir full", "--run-dir full: is not empty and holds no run; name another folder"),
        ("--cache file", "--cache file: is a file; name a folder"),
        ("--report file", "--report file: is a file; name a folder"),
        ("--report full", "full: is not empty and holds no report; choose another folder for it"),
        ("--balance-by none", "--balance-by none: no such file; without it shards split in another way"),
        (
            "--balance-by file",
            "--balance-by file: holds no seconds by case id; give the file that `conformance ci plan` wrote",
        ),
        (
            "--drill *:run:exit=abc",
            "--drill '*:run:exit=abc': exit takes an argument of the form [0-9]{0,3}, not 'abc'",
        ),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    Path("full").mkdir()
    Path("full/mine").touch()
    with pytest.raises(UsageError) as refused:
        settings(*words.split())
    assert str(refused.value) == said


def test_places_that_may_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/run.json").touch()
    Path("site").mkdir()
    Path("site/site.json").touch()
    found = settings("--resume", "--run-dir", "run", "--report", "site", "--drill", "*:place:scale=a.b*1.05")
    assert (found.run_directory, str(found.drills[0])) == (tmp_path / "run", "*:place:scale=a.b*1.05")
