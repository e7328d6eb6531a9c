"""The command as people and CI use it: pytest's options, wrong input, interruption, resuming."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from harness.environment import changes
from harness.executors import record_durations
from harness.records import Case, Package
from harness.store import read_run
from tests.conformance_site import Finished, Site

CPU = {"target": ["cpu"], "mode": ["eager"], "dtype": ["float16"]}
TOKEN = "hf_" + "Q7x" * 11
SECRET = "correct-horse-battery"
PASSWORD = "swordfish-of-the-index"


def cpu_case(model: str) -> str:
    return f"{model}/causal-lm/cpu-eager-float16"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    environ = {"HF_TOKEN": TOKEN, "MY_API_KEY": SECRET, "HF_ENDPOINT": f"http://me:{PASSWORD}@127.0.0.1:9"}
    site = Site(tmp_path_factory.mktemp("site"), environ=environ)
    return site.rows({name: {} for name in ("a", "b", "c", "hostile")}, axes=CPU)


@pytest.fixture(scope="module")
def mixed(site: Site) -> Finished:
    """One that passes, one that dies, one whose error text is hostile; the fourth is not selected."""
    text = f"<script>alert(1)</script> \x1b[31m & ]]> 'hf_zzzzzzzzzzzz' {TOKEN} {SECRET} ünï"
    drills = ("--drill", "b/*:load:exit=3", "--drill", f"hostile/*:run:raise={text}")
    return site.run(
        "mixed", *drills, "-k", "not c/causal", "--junitxml", "junit.xml", "--retries", "0", "--localize", "0"
    )


def test_pytest_selects_and_the_selection_is_the_plan(mixed: Finished) -> None:
    assert mixed.told == {"a": "PASS completed compare", "b": "FAIL crash load", "hostile": "FAIL runtime_error run"}
    assert mixed.stored.run.selection == "-k 'not c/causal'"
    assert {case.model for case in mixed.stored.run.plan} == {"a", "b", "hostile"}
    assert mixed.exit_status == 1
    assert "PASS 1  FAIL 2" in mixed.output
    assert re.search(r"FAIL +b/causal-lm/cpu-eager-float16: crash at load", mixed.output)


def test_junit_parses_and_carries_the_status(mixed: Finished) -> None:
    suite = ElementTree.parse(mixed.directory.parent / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "2", "0")
    properties = {
        case.get("name"): {p.get("name"): p.get("value") for p in case.iter("property")}
        for case in suite.iter("testcase")
    }
    assert properties[f"test_model[{cpu_case('b')}]"] == {"case": cpu_case("b"), "status": "FAIL", "outcome": "crash"}


def test_hostile_texts_and_secrets_are_harmless(mixed: Finished) -> None:
    texts = {"output": mixed.output, "errors": mixed.errors}
    for path in (mixed.directory.parent / "junit.xml", *mixed.directory.rglob("*")):
        if path.is_file():
            texts[path.name] = path.read_bytes().decode(errors="replace")
    assert len(texts) > 7
    for name, text in texts.items():
        for secret in (TOKEN, SECRET, PASSWORD, "hf_zzzz"):
            assert secret not in text, f"{secret} in {name}"
    result = mixed.results["hostile"]
    assert "<script>alert(1)</script> \x1b[31m & ]]>" in result.outcome.message
    assert result.outcome.message.endswith("'hf_***' *** *** ünï")
    assert not any("\x1b" in texts[name] for name in ("junit.xml", "output", "errors"))
    assert mixed.stored.run.environment.variables["HF_ENDPOINT"] == "http://127.0.0.1:9"


def test_packages_that_changed_under_a_run_are_named() -> None:
    before = (Package(name="torch", version="2.13.0"), Package(name="gguf", version="0.19.0"))
    after = (Package(name="torch", version="2.14.0"), Package(name="accelerate", version="1.15.0"))
    assert changes(before, before) == ""
    assert changes(before, after) == "accelerate absent -> 1.15.0, gguf 0.19.0 -> absent, torch 2.13.0 -> 2.14.0"


def test_lf_plans_what_failed_last(site: Site, mixed: Finished) -> None:
    again = site.run("again", "--lf", "-k", "b/causal or a/causal")
    assert again.told == {"b": "PASS completed compare"}
    assert again.exit_status == 0


def test_x_stops_and_says_what_was_not_run(site: Site) -> None:
    drills = ("--drill", "a/*:load:exit=3", "--drill", "b/*:load:hang")
    stopped = site.run("stopped", *drills, "-x", "--workers", "1", "--retries", "0", "--stall", "4")
    assert stopped.told["a"] == "FAIL crash load"
    assert stopped.told["c"] == stopped.told["hostile"] == "NOTRUN cancelled"
    assert stopped.told["b"] in ("FAIL timeout load", "NOTRUN cancelled"), "it may have begun"
    assert stopped.exit_status == 1


def test_collect_only_writes_nothing(site: Site) -> None:
    listed = site.run("listed", "--collect-only", "-q")
    assert listed.exit_status == 0
    assert re.findall(r"test_model\[(.*)\]", listed.output) == [cpu_case(n) for n in ("a", "b", "c", "hostile")]
    assert not listed.directory.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--model", "nobody"), "no model is called 'nobody' in what is planned"),
        (("-k", "nobody"), "the selection plans no case; 'conformance list' shows what there is"),
        (("--shard", "3/2"), "--shard '3/2' is not I/N with 1 <= I <= N, for example 2/5"),
        (("--workers", "0"), "--workers 0: at least one worker is needed"),
        (("--retries", "-1"), "--retries takes 0 or more, --stall more than 0 seconds"),
        (("--drill", "*:lunch:exit"), "--drill '*:lunch:exit': expected GLOB:STAGE:ACTION with a stage of resolve"),
        (("--drill", "*:run:explode"), "--drill '*:run:explode': unknown action 'explode'; one of exit, segfault"),
        (("--manifest", "none.yaml"), "none.yaml"),
        (("--profile", "moon"), "no profile is called 'moon' in what is planned"),
        (("--expectations", "maybe"), "conformance: argument --expectations: invalid choice: 'maybe'"),
        (("--cache-limit", "abc"), "conformance: argument --cache-limit: invalid float value: 'abc'"),
        (("--check", "nope"), "no check is called 'nope' in what is planned"),
        (("--bogus",), "unrecognized arguments: --bogus"),
        (("--modle", "a"), "conformance: no such option: --modle; did you mean --mode?"),
        (("-k", "(("), "Wrong expression passed to '-k': ((:"),
        (("--shard", "9/9"), "the selection plans no case; 'conformance list' shows what there is"),
        (("--drill", "zzz:run:raise"), "--drill 'zzz:run:raise': no selected case matches 'zzz'; it would prove noth"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_input_is_one_sentence_and_status_2(site: Site, arguments: tuple[str, ...], told: str) -> None:
    finished = site.run("wrong", *arguments)
    assert finished.exit_status == 2
    assert told in finished.errors
    assert "Traceback" not in finished.errors + finished.output
    assert not (finished.directory / "run.json").exists()


def test_a_directory_that_holds_a_run_is_not_overwritten(site: Site, mixed: Finished) -> None:
    before = (mixed.directory / "cases.jsonl").read_bytes()
    refused = site.run("mixed")
    assert (refused.exit_status, (mixed.directory / "cases.jsonl").read_bytes()) == (2, before)
    assert "holds a run already; use --resume or another --run-dir" in refused.errors
    other = site.run("mixed", "--resume", "-k", "a/causal")
    assert other.exit_status == 2
    assert "was planned with another selection (3 cases, now 1)" in other.errors


def family(process_id: int) -> list[psutil.Process]:
    """A process and everything it started, fork server's children included."""
    parent = psutil.Process(process_id)
    return [parent, *parent.children(recursive=True)]


def wait_until_gone(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def start_one_that_hangs(site: Site, name: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A run whose first case has ended and whose second one hangs."""
    (site.cache / "durations.json").unlink(missing_ok=True)  # without it the plan's order holds
    process = site.start(name, "--drill", "b/*:run:hang", "--workers", "1", "-k", "a/causal or b/causal or c/causal")
    site.wait_for_results(name, 1)
    deadline = time.monotonic() + 60
    log = site.path / name / "logs"
    while not list(log.glob("b-*candidate.log")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process, family(process.pid)


def test_an_interrupt_before_the_run_begins_is_one(tmp_path: Path) -> None:
    """pytest ends with 2 then, which would mean wrong input."""
    site = Site(tmp_path)
    os.mkfifo(tmp_path / "models.yaml")
    process = site.start("run")
    with (tmp_path / "models.yaml").open("w"):  # open as soon as the run reads it, and waits for the rest
        process.send_signal(signal.SIGINT)
        finished = site.finish("run", process)
    assert finished.exit_status == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_has_finished(site: Site, number: signal.Signals) -> None:
    name = f"interrupted-{number.name}"
    process, processes = start_one_that_hangs(site, name)
    began = time.monotonic()
    os.kill(process.pid, number)
    finished = site.finish(name, process)
    assert finished.exit_status == 130
    assert finished.told["a"] == "PASS completed compare"
    assert finished.told["b"].startswith("NOTRUN cancelled ")  # in whatever stage it had come to
    assert finished.told["c"] == "NOTRUN cancelled"
    assert time.monotonic() - began < 60
    assert wait_until_gone(processes, 10) == []
    stored = finished.stored
    assert (stored.run.exit_status, stored.missing, stored.problems) == (130, (), ())


def test_an_interruption_while_workers_start_is_no_fault(site: Site) -> None:
    process = site.start(
        "early", "--drill", "*:load:hang", "-k", "a/causal or b/causal"
    )  # so that none completes first
    while not (site.path / "early" / "run.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the fork server is in the same group
    finished = site.finish("early", process)
    assert finished.exit_status == 130
    assert {told.split()[1] for told in finished.told.values()} == {"cancelled"}


def test_a_killed_run_resumes_and_repeats_what_was_in_flight(site: Site) -> None:
    process, processes = start_one_that_hangs(site, "killed")
    assert len(processes) >= 3, "the controller, its fork server, a case"
    os.kill(process.pid, signal.SIGKILL)
    process.stdout.close()
    process.wait()
    assert wait_until_gone(processes, 300) == [], "children die with a controller that had no chance to end them"
    torn = site.path / "killed" / "cases.jsonl"
    assert torn.read_bytes().endswith(b"\n")
    assert read_run(site.path / "killed").missing == (cpu_case("b"), cpu_case("c"))
    torn.write_bytes(torn.read_bytes() + b'{"case":{"id":"b/caus')
    before = {r.case.id: r for r in read_run(site.path / "killed").results}
    resumed = site.run("killed", "--resume", "-k", "a/causal or b/causal or c/causal")
    assert (resumed.exit_status, resumed.told) == (0, dict.fromkeys("abc", "PASS completed compare"))
    after = {r.case.id: r for r in resumed.stored.results}
    assert after[cpu_case("a")] == before[cpu_case("a")], "what has ended is not repeated"
    assert resumed.stored.problems == ()


def test_shards_cover_the_plan_and_merge(site: Site) -> None:
    from harness.store import merge

    whole: list[Case] = []
    for number in (1, 2):
        part = site.run(f"shard-{number}", "--shard", f"{number}/2", "--workers", "1")
        assert part.exit_status == 0
        whole += part.stored.run.plan
    assert sorted(case.model for case in whole) == ["a", "b", "c", "hostile"]
    merged = merge([site.path / "shard-1", site.path / "shard-2"], site.path / "merged")
    assert (merged.missing, merged.problems, merged.run.totals) == ((), (), {"PASS": 4})


def test_a_disk_that_fills_ends_the_run_and_keeps_what_was_written(site: Site, tmp_path: Path) -> None:
    """cases.jsonl on a device that is always full: nothing is claimed that was not written."""
    directory = site.path / "full"
    (directory / "logs").mkdir(parents=True)
    limited = Site(site.path, site.cache, site.environ)
    command = limited.command("full", "--workers", "1", "-k", "a/causal")
    script = (
        "import os, runpy, sys; real = os.fsync\n"
        "def full(handle):\n"
        "    name = os.readlink(f'/proc/self/fd/{handle}')\n"
        "    if name.endswith('cases.jsonl'): raise OSError(28, 'No space left on device')\n"
        "    real(handle)\n"
        "os.fsync = full; sys.argv = ['conformance', *sys.argv[1:]]\n"
        "runpy.run_module('harness', run_name='__main__')"
    )
    (tmp_path / "full_disk.py").write_text(script)
    limited.command = lambda *_: [command[0], str(tmp_path / "full_disk.py"), *command[3:]]  # type: ignore[method-assign]
    finished = limited.run("full")
    assert finished.exit_status == 3
    assert "cannot write the result of a/causal-lm/cpu-eager-float16: No space left on device" in finished.output
    assert (finished.stored.results, finished.stored.missing) == ((), (cpu_case("a"),))
    assert finished.stored.run.finished is None


def test_items_stand_in_the_order_in_which_their_cases_begin(site: Site) -> None:
    """So that a long run tells each case soon after its end, and does not wait for the plan's first one."""
    record_durations(site.cache / "durations.json", {cpu_case("a"): 1e5, cpu_case("b"): 9e5, cpu_case("c"): 2e5})
    finished = site.run("ordered", "-k", "a/causal or b/causal or c/causal", "--workers", "1", "--localize", "0")
    told = re.findall(r"test_model\[(\w)/\S+\] PASS", finished.output)
    assert told == ["b", "c", "a"]
    assert [result.case.model for result in finished.stored.results] == told
    assert [case.model for case in finished.stored.run.plan] == ["a", "b", "c"]
