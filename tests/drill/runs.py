"""The scripted faults of whole runs: parents killed, shards lost, disks full, caches altered, devices dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.errors import HarnessError
from harness.store import merge, read_run
from tests.conformance_site import Site

CPU = {"target": ["cpu"], "mode": ["eager"], "dtype": ["float16"]}
PASS = "PASS completed compare"


@dataclass(frozen=True)
class Scenario:
    """A fault of a run: plays it in a site of its own and tells what was seen."""

    what: str
    expected: str
    play: Callable[[Site], str]
    within: float = 240.0


def every() -> tuple[Scenario, ...]:
    """All faults of whole runs."""
    return (
        Scenario(
            "the parent is killed, then --resume", "all dead; a kept, b c repeated; a b c PASS; exit 0", _killed, 360
        ),
        Scenario("a torn last line, then --resume", "1 torn; a b c PASS; exit 0", _torn, 240),
        Scenario("Ctrl-C while a case hangs", _INTERRUPTED, lambda site: _interrupt(site, signal.SIGINT)),
        Scenario("SIGTERM while a case hangs", _INTERRUPTED, lambda site: _interrupt(site, signal.SIGTERM)),
        Scenario("the fork server is killed while a case runs", "a b c PASS; exit 0", _server_killed, 360),
        Scenario("the worker is killed from outside once", "a flaky; b c PASS; exit 0", _worker_killed, 240),
        Scenario("two runs on one directory", "second refused, exit 3; first: a b c PASS; exit 0", _two_writers, 360),
        Scenario("two runs on one cold cache", "a b c PASS; a b c PASS; exits 0 0", _two_runs, 360),
        Scenario("a reference is altered", "a b c ERROR invalid_reference; exit 3; made anew: PASS", _altered, 360),
        Scenario("half of a reference is gone", "a b c ERROR invalid_reference; exit 3; made anew: PASS", _halved, 360),
        Scenario("a record of durations that is no JSON", "a b c PASS; exit 0", _durations, 240),
        Scenario("the device dies at a", "a FAIL; b c NOTRUN blocked; exit 1; resumed: b c PASS", _dead_device, 480),
        Scenario("a shard is lost", "b c missing; unfinished", _lost_shard, 240),
        Scenario("shards with contradicting results", "both named, refused", _contradicting, 240),
        Scenario(
            "the disk is full under the results", "exit 3; nothing claimed; later resumed: a b c PASS", _full_disk, 360
        ),
        Scenario("run.json is gone", "half gone, named", _half_gone, 40),
        Scenario("a newer harness wrote the run", "refused, upgrade named", _newer, 40),
    )


_INTERRUPTED = "exit 130; a PASS, b c NOTRUN; all dead"


def _site(site: Site) -> Site:
    return site.rows({name: {} for name in "abc"}, axes=CPU)


def _told(site: Site, name: str, exit_status: int | None = None) -> str:
    """``a b PASS, c FAIL; exit 1``."""
    by_status: dict[str, list[str]] = {}
    for result in sorted(read_run(site.path / name).results, key=lambda r: r.case.model):
        by_status.setdefault(str(result.verdict.status), []).append(result.case.model)
    text = ", ".join(f"{' '.join(models)} {status}" for status, models in by_status.items())
    return text if exit_status is None else f"{text}; exit {exit_status}"


def _start_hanging(site: Site, name: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A run in which a has ended and b hangs."""
    process = site.start(name, "--drill", "b/*:run:hang", "--workers", "1")
    site.wait_for_results(name, 1)
    while not list((site.path / name / "logs").glob("b-*candidate.log")):
        time.sleep(0.05)
    parent = psutil.Process(process.pid)
    return process, [parent, *parent.children(recursive=True)]


def _all_dead(processes: list[psutil.Process]) -> str:
    _, alive = psutil.wait_procs(processes, timeout=300)
    left = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    return f"alive: {left}" if left else "all dead"


def _killed(site: Site) -> str:
    process, processes = _start_hanging(_site(site), "run")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    dead = _all_dead(processes)
    before = (site.path / "run" / "cases.jsonl").read_text()
    missing = " ".join(case.partition("/")[0] for case in read_run(site.path / "run").missing)
    finished = site.run("run", "--resume")
    kept = "a kept" if (site.path / "run" / "cases.jsonl").read_text().startswith(before) else "a lost"
    return f"{dead}; {kept}, {missing} repeated; {_told(site, 'run', finished.exit_status)}"


def _torn(site: Site) -> str:
    _site(site).run("run")
    path = site.path / "run" / "cases.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    torn = len(read_run(site.path / "run").problems)
    finished = site.run("run", "--resume")
    return f"{torn} torn; {_told(site, 'run', finished.exit_status)}"


def _interrupt(site: Site, number: int) -> str:
    process, processes = _start_hanging(_site(site), "run")
    os.kill(process.pid, number)
    finished = site.finish("run", process)
    return f"exit {finished.exit_status}; {_told(site, 'run')}; {_all_dead(processes)}"


def _server_killed(site: Site) -> str:
    process = _site(site).start("run", "--drill", "a/*:run:hang@1", "--workers", "1", "--stall", "15")
    while not list((site.path / "run" / "logs").glob("a-*candidate.log")):
        time.sleep(0.05)
    for child in psutil.Process(process.pid).children():
        if "forkserver" in " ".join(child.cmdline()):
            child.kill()
    finished = site.finish("run", process)
    return _told(site, "run", finished.exit_status)


def _worker_killed(site: Site) -> str:
    process = _site(site).start("run", "--drill", "a/*:run:hang@1", "--workers", "1")
    log = site.path / "run" / "logs"
    while not list(log.glob("a-*candidate.log")):
        time.sleep(0.05)
    for child in psutil.Process(process.pid).children(recursive=True):
        if "forkserver" in " ".join(child.parent().cmdline() if child.parent() else ""):
            child.kill()
    finished = site.finish("run", process)
    flaky = [r.case.model for r in read_run(site.path / "run").results if "flaky" in r.verdict.flags]
    told = _told(site, "run", finished.exit_status).replace("a b c PASS", "b c PASS")
    return f"{' '.join(flaky)} flaky; {told}"


def _two_writers(site: Site) -> str:
    process, _ = _start_hanging(_site(site), "run")
    second = site.run("run", "--resume")
    refused = "another process is writing this run" in second.output + second.errors
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    first = site.run("run", "--resume")
    what = "refused" if refused else "not refused"
    return f"second {what}, exit {second.exit_status}; first: {_told(site, 'run', first.exit_status)}"


def _two_runs(site: Site) -> str:
    _site(site)
    names = ("one", "two")
    processes = [site.start(name, "--workers", "1") for name in names]
    finished = [site.finish(name, process) for name, process in zip(names, processes, strict=True)]
    return f"{_told(site, 'one')}; {_told(site, 'two')}; exits {' '.join(str(f.exit_status) for f in finished)}"


def _spoilt_reference(site: Site, spoil: Callable[[Path], None]) -> str:
    _site(site).run("first")
    for path in (site.cache / "references").rglob("outputs.safetensors"):
        spoil(path)
    second = site.run("second")
    kinds = {str(r.outcome.kind) for r in second.stored.results}
    told = _told(site, "second", second.exit_status).replace("ERROR", f"ERROR {' '.join(kinds)}")
    third = site.run("third", "--refresh-reference")
    return f"{told}; made anew: {'PASS' if third.exit_status == 0 else _told(site, 'third')}"


def _altered(site: Site) -> str:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[-3] ^= 4
        path.write_bytes(data)

    return _spoilt_reference(site, flip)


def _halved(site: Site) -> str:
    return _spoilt_reference(site, lambda path: (path.parent / "entry.json").unlink())


def _durations(site: Site) -> str:
    site.cache.mkdir(parents=True)
    (site.cache / "durations.json").write_bytes(b'{"a": ')
    finished = _site(site).run("run")
    return _told(site, "run", finished.exit_status)


def _dead_device(site: Site) -> str:
    site.rows({name: {} for name in "abc"}, axes={"target": ["spyre"], "mode": ["eager"], "dtype": ["float16"]})
    drills = ("--drill", "a/*:run:device_error", "--drill", "probe/spyre:place:device_error")
    first = site.run("run", *drills, "--workers", "1", "--localize", "0")
    blocked = all(r.outcome.message.startswith("blocked: ") for r in first.stored.results if r.case.model != "a")
    told = _told(site, "run").replace(", b c NOTRUN", "; b c NOTRUN blocked" if blocked else "; b c NOTRUN")
    site.run("run", "--resume", "--workers", "1")
    later = _told(site, "run").replace("a FAIL, ", "")
    return f"{told}; exit {first.exit_status}; resumed: {later}"


def _lost_shard(site: Site) -> str:
    _site(site)
    process, _ = _start_hanging(site, "two")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    merged = merge([site.path / "two"], site.path / "merged")
    missing = " ".join(case.partition("/")[0] for case in merged.missing)
    return f"{missing} missing; {'finished' if merged.run.finished else 'unfinished'}"


def _contradicting(site: Site) -> str:
    _site(site)
    for name in ("one", "two"):
        site.run(name, "-k", "a/causal")
    try:
        merge([site.path / "one", site.path / "two"], site.path / "merged")
    except HarnessError as error:
        named = all(str(site.path / name) in str(error) for name in ("one", "two"))
        return "both named, refused" if named else f"refused: {error}"
    return "merged"


def _full_disk(site: Site) -> str:
    """fsync of cases.jsonl tells a full disk; the process is the real one otherwise."""
    (site.path / "full_disk.py").write_text(
        "import os, runpy, sys\n"
        "real = os.fsync\n"
        "def full(handle):\n"
        "    if os.readlink(f'/proc/self/fd/{handle}').endswith('cases.jsonl'):\n"
        "        raise OSError(28, 'No space left on device')\n"
        "    real(handle)\n"
        "os.fsync = full\n"
        "sys.argv = ['conformance', *sys.argv[1:]]\n"
        "runpy.run_module('harness', run_name='__main__')\n"
    )
    command = _site(site).command("run")
    command = [command[0], str(site.path / "full_disk.py"), *command[3:]]
    done = subprocess.run(command, cwd=site.path, env=site.environ, capture_output=True, text=True, timeout=3600)
    stored = read_run(site.path / "run")
    claimed = "nothing claimed" if not stored.results and stored.run.finished is None else _told(site, "run")
    site.run("run", "--resume")
    return f"exit {done.returncode}; {claimed}; later resumed: {_told(site, 'run')}"


def _half_gone(site: Site) -> str:
    directory = site.path / "gone"
    directory.mkdir()
    (directory / "cases.jsonl").write_text("")
    try:
        read_run(directory)
    except HarnessError as error:
        return "half gone, named" if "half gone" in str(error) else str(error)
    return "read"


def _newer(site: Site) -> str:
    directory = site.path / "newer"
    directory.mkdir()
    (directory / "run.json").write_text(json.dumps({"schema_version": 999}))
    try:
        read_run(directory)
    except HarnessError as error:
        return "refused, upgrade named" if "Upgrade the harness" in str(error) else str(error)
    return "read"
