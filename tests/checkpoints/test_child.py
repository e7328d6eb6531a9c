import os
import sys
import time
from pathlib import Path

import psutil

from harness.checkpoints import child


def python(program: str) -> list[str]:
    return [sys.executable, "-S", "-c", program]


def test_streams_status_and_request() -> None:
    finished = child.run(
        python("import sys; print(sys.stdin.readline()); print('no', file=sys.stderr); sys.exit(3)"),
        timeout=20,
        request="hello\n",
    )
    assert (finished.status, finished.output, finished.errors) == (3, "hello\n\n", "no\n")
    assert finished.tail() == "hello | no"


def test_the_environment_is_the_one_given() -> None:
    finished = child.run(python("import os; print(os.environ.get('A'))"), timeout=20, environ={"A": "1"})
    assert finished.output == "1\n"


def test_the_whole_group_ends_with_the_clock(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    grandchild = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    program = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-S', '-c', {grandchild!r}])\n"
        f"open({str(note)!r}, 'w').write(str(p.pid)); print('started', flush=True); time.sleep(60)"
    )
    before = time.monotonic()
    finished = child.run(python(program), timeout=1.5)
    assert (finished.status, finished.output) == (None, "started\n")
    assert time.monotonic() - before < 10
    pid = int(note.read_text())
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() - before < 20
        time.sleep(0.02)


def test_a_child_that_never_reads_its_request() -> None:
    finished = child.run(python("import os; os.close(0)"), timeout=20, request="x" * 60_000)
    assert finished.status == 0


def test_end_of_file_tells_the_child_that_its_parent_is_gone() -> None:
    program = "import sys; sys.stdin.read()"
    finished = child.run(python(program), timeout=0.5)
    assert finished.status is None, f"standard input of {os.getpid()} stays open while it lives"
