"""The fork server: torch and transformers imported once, a child in some 25 ms."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from weakref import WeakSet

from harness.errors import HarnessError
from harness.isolate import family

PRELOAD = "harness.isolate.preload"
LAUNCHES = 3
"""Servers in a row that may die, for instance of the kernel's want of memory, before it is no chance."""
PATIENCE = 600
"""Seconds until the first child has to answer; importing torch takes 3 s, and minutes on a crowded machine."""

FROZEN_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # numpy's pool would start threads at import
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Set for the server and thereby for its children; settings of a case travel as arguments."""

SECRET_NAME = re.compile(r"(?i)(token|password|passwd|secret|api_?key|credential)s?$")
"""Names of environment variables whose value is a secret, by the habits of CI systems and the Hub. No worker
needs one after the resolve stage, so none has one."""

_CREDENTIALS = re.compile(r"://[^/@\s]+@")
"""As addresses of indexes, proxies and Hubs have them."""

_lock = threading.Lock()
_started: WeakSet[BaseProcess] = WeakSet()
"""multiprocessing has one fork server in a process, however many objects stand for it."""


class Server:
    """Starts children, checks that the server is fit, and replaces it when it is not."""

    def __init__(self) -> None:
        self._context = get_context("forkserver")
        self._lock = _lock
        self._checked = False

    def start_process(self, target: object, arguments: tuple[object, ...]) -> BaseProcess:
        """A started child. Restarts a dead or unfit server first, also one that dies while it starts.

        Raises HarnessError when servers keep dying.
        """
        with self._lock:
            for left in reversed(range(LAUNCHES)):
                try:
                    if not self._checked or not self._alive():
                        self._launch()
                    return self._spawn(target, arguments)
                except (OSError, EOFError) as error:
                    self._checked = False
                    if not left:
                        raise HarnessError(
                            f"the fork server, or its first child, died {LAUNCHES} times before a process could start "
                            f"({type(error).__name__}: {error}). Look for killed processes in the kernel's log, "
                            "and at the installation: conformance env."
                        ) from error
            raise AssertionError("the last launch returns or raises")

    def distrust(self) -> None:
        """Check the server again before the next child: something died badly."""
        with self._lock:
            if self._checked and _threads_of(_pid()) != 1:
                self._checked = False

    def end_orphans(self) -> None:
        """Kill what processes left behind that died with descendants in sessions of their own."""
        with self._lock:  # so that no process begins meanwhile that is not known yet
            children = {process.pid: process for process in family.children(_pid())}
            started = {process.pid for process in _started}
            for pid in children.keys() - started:
                family.end([*family.descendants(pid), children[pid]])

    def stop(self) -> None:
        """End the server."""
        with self._lock:
            self._kill()

    def pipe(self) -> tuple[Connection, Connection]:
        """A one-way pipe: (ours, the child's)."""
        return self._context.Pipe(duplex=False)

    def _spawn(self, target: object, arguments: tuple[object, ...]) -> BaseProcess:
        process = self._context.Process(target=target, args=arguments, daemon=False)  # type: ignore[arg-type]
        process.start()
        _started.add(process)
        return process

    def _launch(self) -> None:
        self._kill()
        self._context.set_forkserver_preload([PRELOAD])
        resource_tracker.ensure_running()  # the server's start would do it, and let Ctrl-C through again
        with _environment(), _deaf_to_ctrl_c():
            neutralise_main()
            forkserver.ensure_running()
        self._canary()
        self._checked = True

    def _canary(self) -> None:
        """Prove that children have the preloaded modules and that their thread pools work.

        multiprocessing swallows an ImportError of a preloaded module, and a server that ran a threaded
        operation gives children that hang in theirs.
        """
        ours, theirs = self.pipe()
        process = self._spawn(canary, (theirs,))
        theirs.close()
        try:
            if not ours.poll(PATIENCE):
                raise HarnessError(
                    "the fork server's first child hung in a threaded operation: a preloaded module starts "
                    f"threads. Server threads: {_threads_of(_pid())}. Keep {PRELOAD} to imports."
                )
            answer = ours.recv()
        finally:
            process.kill()
            process.join()
            ours.close()
        if answer != "fit":
            raise HarnessError(f"the fork server is unfit: {answer}. Check the installation: conformance env.")
        threads = _threads_of(_pid())
        if threads != 1:
            raise HarnessError(f"the fork server has {threads} threads after preloading; children would hang.")

    def _alive(self) -> bool:
        return _pid() is not None and _threads_of(_pid()) >= 1

    def _kill(self) -> None:
        self._checked = False
        pid = _pid()
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError, FileNotFoundError):
            _state()._stop()  # type: ignore[attr-defined]


def canary(connection: Connection) -> None:
    """Runs in a child: a threaded product, and whether the preload arrived."""
    if PRELOAD not in sys.modules:
        try:
            __import__(PRELOAD)
            connection.send(f"{PRELOAD} was not preloaded")
        except ImportError as error:
            connection.send(f"{PRELOAD} cannot be imported: {error}")
        return
    import torch

    torch.set_num_threads(2)
    square = torch.ones(512, 512)
    total = float((square @ square).sum())
    connection.send("fit" if total == 512.0**3 else f"512 x 512 ones multiplied to a sum of {total}")


def neutralise_main() -> None:
    """Keep children from re-executing a console script: they skip a main module named ``*.__main__``."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is None:
        main.__spec__ = ModuleSpec("harness.__main__", None)


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """What is started here never sees the terminal's Ctrl-C, which is for the controller: a server that dies
    of it while it preloads would make a fault of the harness out of an interruption."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(FROZEN_ENVIRONMENT)
    for name, value in before.items():
        if SECRET_NAME.search(name) or _CREDENTIALS.search(value):
            os.environ.pop(name, None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _state() -> forkserver.ForkServer:
    return forkserver._forkserver


def _pid() -> int | None:
    pid: int | None = _state()._forkserver_pid  # type: ignore[attr-defined]
    return pid


def _threads_of(pid: int | None) -> int:
    """Number of threads of a live process; 0 for a dead one."""
    if pid is None:
        return 0
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] == "Z" else int(fields[17])
