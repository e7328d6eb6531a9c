"""One process per case: each way to die is an outcome of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from harness.isolate import Ended, Isolator, Limits
from harness.records import Drill, OutcomeKind, Stage

SUBJECTS = "tests.isolate.subjects"


@pytest.fixture(scope="module")
def isolator() -> Iterator[Isolator]:
    one = Isolator()
    yield one
    one.close()


def run(isolator: Isolator, name: str, request: str, log: Path, **options: object) -> Ended:
    limits = options.pop("limits", Limits({}, default=600))
    return isolator.run(f"{SUBJECTS}:{name}", request, limits=limits, log=log, **options)  # type: ignore[arg-type]


def test_answer_stages_and_output(isolator: Isolator, tmp_path: Path) -> None:
    seen: list[Stage] = []
    ended = run(isolator, "echo", '"hé"', tmp_path / "log", on_stage=seen.append)
    assert ended.value == '{"text":"\\"hé\\""}'
    assert ended.outcome.kind is OutcomeKind.COMPLETED
    assert seen == [Stage.LOAD, Stage.RUN]
    assert set(ended.seconds) == {Stage.LOAD, Stage.RUN}
    assert (tmp_path / "log").read_text() == "out of the child\n"
    assert ended.peak_memory is None or ended.peak_memory > 10 << 20


@pytest.mark.parametrize("stage", ["LOAD", "COMPILE", "RUN"])
def test_each_death_has_its_outcome(isolator: Isolator, tmp_path: Path, stage: str) -> None:
    at = Stage[stage]
    short = Limits({at: 1.0}, default=600)
    told = {
        name: run(isolator, name, stage, tmp_path / name, **({"limits": short} if name == "hang" else {})).outcome
        for name in ("vanish", "segfault", "hang")
    }
    assert {name: (o.kind, o.stage, o.signal, o.exit_code, o.message) for name, o in told.items()} == {
        "vanish": (
            OutcomeKind.CRASH,
            at,
            None,
            0,
            f"exited with status 0 in stage {at} before it gave a result",
        ),
        "segfault": (OutcomeKind.CRASH, at, "SIGSEGV", -11, f"ended by SIGSEGV in stage {at}"),
        "hang": (OutcomeKind.TIMEOUT, at, None, None, f"no end within 1 s in stage {at}"),
    }
    assert "Segmentation fault" in told["segfault"].detail
    assert "subjects.py" in told["hang"].detail, "the stacks of a hanging process are in its log"


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"])
@pytest.mark.parametrize("server", ["first", "second"])
def test_killed_from_outside(isolator: Isolator, tmp_path: Path, name: str, server: str) -> None:
    """No failure of the device: what ends a whole job sends these to every process of it."""
    if server == "second":
        isolator.close()
    outcome = run(isolator, "shoot_itself", name, tmp_path / "log").outcome
    assert (outcome.kind, outcome.stage, outcome.signal) == (OutcomeKind.KILLED, Stage.RUN, name)
    assert outcome.message == f"killed by {name} from outside"


@pytest.mark.parametrize(
    ("request_text", "kind"),
    [
        ("memory", OutcomeKind.HOST_OUT_OF_MEMORY),
        ("unsupported", OutcomeKind.UNSUPPORTED_OP),
        ("exit", OutcomeKind.RUNTIME_ERROR),
    ],
)
def test_exceptions_are_classified(isolator: Isolator, tmp_path: Path, request_text: str, kind: OutcomeKind) -> None:
    outcome = run(isolator, "raise_named", request_text, tmp_path / "log").outcome
    assert (outcome.kind, outcome.stage) == (kind, Stage.RUN)
    assert "raise_named" in outcome.detail


def test_memory_limit(isolator: Isolator, tmp_path: Path) -> None:
    limits = Limits({}, default=600, memory=2 << 30)
    outcome = run(isolator, "grow", str(3 << 30), tmp_path / "log", limits=limits).outcome
    assert outcome.kind is OutcomeKind.HOST_OUT_OF_MEMORY
    assert outcome.message.endswith("GiB of host memory, limit 2.0 GiB")


def test_grandchild_in_its_own_session_dies_too(isolator: Isolator, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    limits = Limits({Stage.RUN: 1.0}, default=600)
    outcome = run(isolator, "leave_grandchild", str(pid_file), tmp_path / "log", limits=limits).outcome
    assert outcome.kind is OutcomeKind.TIMEOUT
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_an_orphan_of_a_crashed_process_dies_too(isolator: Isolator, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    outcome = run(isolator, "crash_beside_grandchild", str(pid_file), tmp_path / "log").outcome
    assert (outcome.kind, outcome.signal) == (OutcomeKind.CRASH, "SIGABRT")
    deadline = time.monotonic() + 60
    while psutil.pid_exists(int(pid_file.read_text())):
        assert time.monotonic() < deadline, "the orphan lives"
        time.sleep(0.05)


def kill_alone(controller: psutil.Process) -> None:
    controller.kill()


def kill_with_its_group(controller: psutil.Process) -> None:
    os.killpg(controller.pid, signal.SIGKILL)


def kill_after_its_server(controller: psutil.Process) -> None:
    """As Ray ends a worker."""
    for process in [*controller.children(), controller]:
        process.kill()


@pytest.mark.parametrize("kill", [kill_alone, kill_with_its_group, kill_after_its_server])
def test_grandchild_in_its_own_session_dies_with_a_killed_controller(
    tmp_path: Path, kill: Callable[[psutil.Process], None]
) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import sys; from pathlib import Path; from harness.isolate import Isolator, Limits\n"
        "pid, log = sys.argv[1:]\n"
        "Isolator().run('tests.isolate.subjects:leave_grandchild', pid, limits=Limits({}), log=Path(log))"
    )
    command = [sys.executable, "-c", code, str(pid_file), str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], start_new_session=True) as controller:
        while not pid_file.exists() or not pid_file.read_text():
            assert controller.poll() is None
            time.sleep(0.05)
        grandchild = psutil.Process(int(pid_file.read_text()))
        kill(psutil.Process(controller.pid))
    _, alive = psutil.wait_procs([grandchild], timeout=300)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_no_network_after_resolve(isolator: Isolator, tmp_path: Path) -> None:
    """A listener on this machine hears nothing: not from Python, not from libc, not from another program."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        port = listener.getsockname()[1]
        ended = run(isolator, "connect_out", str(port), tmp_path / "log")
        with pytest.raises(TimeoutError):
            listener.accept()
    assert ended.value is not None
    refused = "PermissionError network access after the resolve stage is ref"
    assert json.loads(ended.value)["text"].split("; ") == [
        f"connect: {refused}",
        f"udp: {refused}",
        f"name: {refused}",
        "unix: works",
        "libc: returns -1, errno 13",
        "child: PermissionError: [Errno 13] Permission denied",
    ]


@pytest.mark.parametrize("text", ["pickle", "[1, 2]", "{", '["stage", "lunch", 1.0, 1]', '["failed", "{}", 1.0, 1]'])
def test_an_answer_that_is_none_is_never_executed(isolator: Isolator, tmp_path: Path, text: str) -> None:
    ended = run(isolator, "babble", text, tmp_path / "log")
    assert (ended.value, ended.outcome.kind, ended.outcome.stage) == (None, OutcomeKind.CRASH, Stage.RUN)
    assert ended.outcome.message.startswith("answered with something that is no answer (")


def test_a_stall_ends_before_the_limit_of_its_stage(isolator: Isolator, tmp_path: Path) -> None:
    limits = Limits({}, default=600, stall=2.0)
    outcome = run(isolator, "hang", "RUN", tmp_path / "log", limits=limits).outcome
    assert (outcome.kind, outcome.stage) == (OutcomeKind.TIMEOUT, Stage.RUN)
    assert outcome.message.startswith("stalled: no output and no work for ")
    assert "subjects.py" in outcome.detail


@pytest.mark.parametrize(("name", "request_text"), [("work_silently", "4"), ("write_slowly", "8")])
def test_work_or_words_are_no_stall(isolator: Isolator, tmp_path: Path, name: str, request_text: str) -> None:
    ended = run(isolator, name, request_text, tmp_path / "log", limits=Limits({}, default=600, stall=2.0))
    assert ended.outcome.kind is OutcomeKind.COMPLETED


def test_logs_are_bounded_and_clean(tmp_path: Path) -> None:
    own = Isolator(clean=lambda text: text.replace("SECRET", "***"))
    try:
        outcome = run(own, "print_much", str(3 << 20), tmp_path / "log").outcome
    finally:
        own.close()
    assert outcome.message == "RuntimeError: failed with ***"
    assert "SECRET" not in outcome.detail
    text = (tmp_path / "log").read_text()
    assert "bytes left out" in text
    assert "the end with ***" in text
    assert "SECRET" not in text
    assert len(text) < (1 << 20) + 200


def test_aborting_ends_what_runs_and_starts_nothing(tmp_path: Path) -> None:
    own = Isolator()
    pid_file = tmp_path / "pid"
    ended: list[Ended] = []
    thread = threading.Thread(target=lambda: ended.append(run(own, "wait_for_ever", str(pid_file), tmp_path / "log")))
    thread.start()
    while not pid_file.exists():
        time.sleep(0.05)
    own.abort()
    thread.join(30)
    assert [(e.outcome.kind, e.outcome.message) for e in ended] == [
        (OutcomeKind.CANCELLED, "the run was interrupted while it ran")
    ]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    assert run(own, "echo", "", tmp_path / "log").outcome.kind is OutcomeKind.CANCELLED
    own.close()


def test_workers_inherit_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = ("HF_TOKEN", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY_SECRET", "db_password", "SOME_API_KEYS")
    plain = ("TOKENS_PER_STEP", "PATH", "MARKER")
    for name in (*secret, "TOKENS_PER_STEP", "MARKER"):
        monkeypatch.setenv(name, "a value of some length")
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:secret@index.example/simple")
    own = Isolator()
    ended = run(own, "list_environment", " ".join((*secret, "PIP_INDEX_URL", *plain)), tmp_path / "log")
    own.close()
    assert ended.value == '{"text":"TOKENS_PER_STEP PATH MARKER"}'


def test_threads_work_in_children(isolator: Isolator, tmp_path: Path) -> None:
    ended = run(isolator, "threaded_product", "", tmp_path / "log", threads=2)
    assert ended.value == '{"text":"452984832 2"}'


def test_a_killed_server_is_replaced(isolator: Isolator, tmp_path: Path) -> None:
    from multiprocessing import forkserver

    os.kill(forkserver._forkserver._forkserver_pid, 9)
    time.sleep(0.2)
    assert run(isolator, "echo", "again", tmp_path / "log").value == '{"text":"again"}'


def test_a_server_that_dies_while_it_starts_is_replaced(isolator: Isolator, tmp_path: Path) -> None:
    """As when the kernel takes the memory of one that is importing torch."""
    from multiprocessing import forkserver

    def server() -> int | None:
        pid: int | None = forkserver._forkserver._forkserver_pid
        return pid

    with ThreadPoolExecutor(1) as pool:
        isolator.close()
        before = server()
        begun = pool.submit(run, isolator, "echo", "begun", tmp_path / "log")
        while server() in (None, before):
            time.sleep(0.01)
        time.sleep(0.3)  # it imports torch for seconds
        os.kill(server() or 0, 9)
        assert begun.result().value == '{"text":"begun"}'


def test_a_drill_strikes_where_its_stage_begins(isolator: Isolator, tmp_path: Path) -> None:
    drill = Drill(case="*", stage=Stage.RUN, action="exit", argument="7")
    outcome = run(isolator, "echo", "", tmp_path / "log", drills=(drill,)).outcome
    assert (outcome.kind, outcome.stage, outcome.exit_code) == (OutcomeKind.CRASH, Stage.RUN, 7)
