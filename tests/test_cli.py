"""What the command line answers to input that cannot be meant: one sentence and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import save_file

from harness.cli import main
from harness.records import Status
from tests.stored_runs import write_run

ROW = """\
version: 1
axes: {target: [cpu], mode: [eager], dtype: [float16]}
models:
  tiny:
    task: causal-lm
    source: {folder: tiny}
    inputs: {texts: [hello]}
    licence: MIT
"""
CASE = "tiny/causal-lm/cpu-eager-float16"


class Answer(NamedTuple):
    status: int
    out: str
    err: str


Ask = Callable[..., Answer]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """The program in an empty folder that holds a models.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("models.yaml").write_text(ROW)

    def answer(*words: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["conformance", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Answer(int(ended.value.code or 0), out, err)

    return answer


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", {"tiny": Status.PASS})


def test_check_says_what_is_there(ask: Ask) -> None:
    assert ask("check") == (0, "models.yaml: 1 models, 0 errors\n", "")


def test_check_names_file_line_and_remedy(ask: Ask) -> None:
    Path("models.yaml").write_text(ROW.replace("licence", "licnce"))
    status, out, err = ask("check")
    assert (status, out) == (2, "")
    assert err.startswith("models.yaml:8: unknown key 'licnce' in models.tiny; did you mean 'licence'?")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "--model", "tinny"], "no model is called 'tinny' in what is planned; did you mean 'tiny'?"),
        (["list", "-k", "("], "-k '(': expected a part of a case id, 'not' or '(' at column 2"),
        (["list", "--manifest", "no.yaml"], "no.yaml:1: no.yaml does not exist; name a file that does, or create it"),
        (["localize", "tiny"], "models.yaml has no case tiny; see `conformance list`"),
        (["localize", CASE, "--drill", "x"], "--drill 'x': expected GLOB:STAGE:ACTION with a stage of resolve, "),
        (["repro", CASE, "--out", "models.yaml"], "models.yaml: is a file; choose a folder with --out"),
        (
            ["repro", CASE, "--out", "full"],
            "full: is not empty and holds no reproducer; choose another folder with --out",
        ),
        (["report", "run", "--out", "models.yaml/x"], "models.yaml: file exists; name another path"),
        (["report", "run", "--out", "full"], "full: is not empty and holds no report; choose another folder"),
        (["report", "full"], "full: run.json is missing; it is no run directory. Name a directory that 'run' wrote."),
        (["report", "no"], "no: there is no such directory. Name a directory that 'run' wrote."),
        (["diff", "run", "models.yaml"], "models.yaml: is a file. Name a directory that 'run' wrote."),
        (
            ["ops", "damaged"],
            "damaged/run.json: not JSON (Expecting ':' delimiter: line 1 column 5 (char 4)). The",
        ),
        (["diff", "run", "newer"], "newer/run.json: schema 99 is newer than this harness understands (1). Upgrade "),
        (["gate", "foreign", "--against", "x"], "foreign/run.json: run_id: Field required. The file is damaged or"),
        (["localize", CASE, "--cache", "models.yaml"], "--cache models.yaml: is a file; name a folder"),
        (["history", "add", "run", "no", "--index", "x"], "no: there is no such directory. Name a directory that"),
        (["history", "add", "run", "--index", "words.tsv"], "words.tsv: is a file; name a folder for the index"),
        (["history", "add", "run", "--index", "no://x"], "no://x: Protocol not known: no; name a folder, or a URL"),
        (["history", "case", CASE, "--index", "x"], f"x has no run of {CASE}; add some with `conformance history add"),
        (["bisect", "b", "--package", "p", "--good", "1", "--bad", "2"], "models.yaml has no case b; see `conformance"),
        (
            ["bisect", CASE, "--package", "p", "--good", "1", "--bad", "2", "--out", "words.tsv"],
            "--out words.tsv: is a file; name a folder",
        ),
        (["merge", "run", "--out", "models.yaml"], "models.yaml: is a file; name a new directory for the merged run."),
        (["merge", "run", "--out", "full"], "full: is not empty; name a new directory for the merged run."),
        (["merge", "run", "--out", "run"], "run: holds a run already; name a new directory for the merged one."),
        (["gate", "run", "--against", "full", "--out", "x"], "full/nightly-x86_64-emulator.tsv does not exist; "),
        (["gate", "run", "--against", "garbage.tsv"], "garbage.tsv: cannot be read: "),
        (["gate", "run", "--against", "words.tsv"], "words.tsv:1: is no baseline; the first line is '# baseline 1 "),
        (["gate", "run", "--against", "nan.tsv"], "nan.tsv:2: 'nan' is no number; write '-' where there is none"),
        (["baseline", "update", "run", "--accept", "x"], "--accept x: say better or worse"),
        (["matrix", "--shards", "257"], "--shards 257: GitHub makes 1 to 256 jobs from a matrix; "),
        (["compare", "no", "no"], "no: no such file"),
        (["compare", "full", "full"], "full: is a folder; name a safetensors file"),
    ],
)
def test_input_that_cannot_be_meant(ask: Ask, run: Path, words: list[str], said: str) -> None:
    Path("full").mkdir()
    Path("full/mine").write_text("kept")
    Path("garbage.tsv").write_bytes(b"\xff\xfe\x00")
    Path("words.tsv").write_text("a\tb\n")
    for name, text in (("damaged", '{"a"'), ("newer", '{"schema_version": 99}'), ("foreign", '{"schema_version": 1}')):
        Path(name).mkdir()
        Path(name, "run.json").write_text(text)
    Path("nan.tsv").write_text("# baseline 1 nightly x86_64 emulator\nc\tPASS\t-\tnan\n")
    status, _, err = ask(*words)
    assert (status, err.count("\n")) == (2, 1), err
    assert err.removeprefix("conformance: ").startswith(said)
    assert err.startswith("conformance: ") or said.startswith("no.yaml:1:")
    assert [path.read_text() for path in Path("full").iterdir()] == ["kept"]
    assert not Path("x").exists(), "nothing is written for input that is refused"
    assert Path("models.yaml").read_text() == ROW


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chekc"], "No such command 'chekc'. Did you mean 'check'?"),
        (["check", "--josn"], "No such option: --josn"),
        (["matrix", "--shards", "0"], "Invalid value for '--shards'"),
        (["diff", "run"], "Missing argument 'RUN_B'"),
    ],
)
def test_words_that_the_program_does_not_know(ask: Ask, words: list[str], said: str) -> None:
    status, _, err = ask(*words)
    assert status == 2
    assert said in err


def test_an_answer_that_cannot_be_written_is_no_refusal(ask: Ask, run: Path) -> None:
    assert ask("baseline", "update", "run", "--baseline", "mine").status == 0
    assert ask("gate", "run", "--against", "mine").status == 0
    refused = ask("gate", "run", "--against", "mine", "--out", "run")
    assert (refused.status, refused.err) == (2, "conformance: run: is a directory; name another path\n")


def test_a_damaged_file_in_a_run(ask: Ask, run: Path) -> None:
    (run / "cases.jsonl").unlink()
    (run / "cases.jsonl").mkdir()
    assert ask("ops", run) == (2, "", f"conformance: {run}/cases.jsonl: is a directory; name another path\n")


def test_ops_of_a_run_that_recorded_none(ask: Ask, run: Path) -> None:
    status, _, err = ask("ops", "run")
    assert status == 3
    assert err == "conformance: run: no case recorded an op, so nothing is known of any; see `conformance report`\n"


def test_compare_exit_statuses(ask: Ask) -> None:
    save_file({"a": torch.ones(2)}, "a.safetensors")
    save_file({"a": torch.ones(2), "b": torch.ones(1)}, "more.safetensors")
    save_file({"b": torch.ones(2)}, "other.safetensors")
    assert ask("compare", "a.safetensors", "a.safetensors").status == 0
    assert ask("compare", "a.safetensors", "more.safetensors").status == 1
    other = ask("compare", "a.safetensors", "other.safetensors")
    assert other.status == 2
    assert other.err == (
        "conformance: other.safetensors: nothing in it could be compared with a.safetensors; give files with the "
        "same tensor names and shapes\n"
    )


def test_diff_of_a_run_that_lost_a_case(ask: Ask, tmp_path: Path) -> None:
    write_run(tmp_path / "before", {"tiny": Status.PASS, "other": Status.PASS})
    write_run(tmp_path / "after", {"tiny": Status.PASS, "other": Status.FAIL}, night=1)
    assert ask("diff", "before", "before").status == 0
    assert ask("diff", "before", "after").status == 1


def test_a_manifest_that_lies_above_is_named(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("below").mkdir()
    monkeypatch.chdir("below")
    said = "models.yaml:1: models.yaml does not exist; there is ../models.yaml, name that\n"
    assert ask("check") == (2, "", said)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        (
            "CONFORMANCE_CACHE",
            "models.yaml",
            "MEND  cache          models.yaml is no folder; set CONFORMANCE_CACHE to one",
        ),
        (
            "HF_ENDPOINT",
            "http://hub:port",
            "MEND  hub            HF_ENDPOINT is 'http://hub:port': Port could not be cast",
        ),
    ],
)
def test_env_says_what_to_mend(ask: Ask, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1" if variable == "CONFORMANCE_CACHE" else "0")
    monkeypatch.setenv(variable, value)
    status, out, _ = ask("env")
    assert status == 1
    assert said in out
