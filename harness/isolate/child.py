"""Inside the isolated process: stage marks, captured output, and the boundary that nothing raises past."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import parent_process

from harness.errors import CheckpointError, HarnessError
from harness.isolate import family
from harness.isolate.drill import strike
from harness.isolate.network import refuse_network
from harness.isolate.text import clip
from harness.records import Drill, Outcome, OutcomeKind, Record, Stage

STACK_SIGNAL = signal.SIGUSR1
"""Asks the process to write all its stacks to its log."""

ASKED_TO_END = frozenset({"SIGHUP", "SIGINT", "SIGTERM"})
"""Signals by which others end a process; no program dies of them by a fault of its own."""

NO_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
"""Numbers of errors that mean a disk that takes nothing more: infrastructure, not the subject's failure."""


class Marker:
    """Tells the supervisor how far the work came, and lets the drills of a stage strike."""

    def __init__(self, connection: Connection, drills: tuple[Drill, ...]) -> None:
        self._connection = connection
        self.drills = drills
        self.stage: Stage | None = None

    def __call__(self, stage: Stage) -> None:
        self.stage = stage
        tell(self._connection, "stage", stage.value)
        for drill in self.drills:
            if drill.stage is stage:
                strike(drill)


def tell(connection: Connection, kind: str, payload: str) -> None:
    """Send a message as JSON. Never a pickle: the supervisor must not run what a subject made up."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    connection.send_bytes(json.dumps([kind, payload, time.monotonic(), peak]).encode())


def main(connection: Connection, entry: str, request: str, log: str, threads: int, drills: str) -> None:
    """Run ``entry`` ("module:function") on a JSON request and send one JSON answer back."""
    refuse_network()
    _lead_own_family()
    _capture_output(log)
    marker = Marker(connection, tuple(Drill.model_validate_json(line) for line in drills.splitlines()))
    try:
        work = _find(entry, threads)
        answer = work(marker, request)
        sys.stdout.flush()
        sys.stderr.flush()
        tell(connection, "value", answer.model_dump_json())
    except BaseException as error:  # noqa: BLE001 - the boundary: whatever a subject does becomes an Outcome
        outcome = classify(error, marker.stage)
        traceback.print_exc()
        tell(connection, "failed", outcome.model_dump_json())
    connection.close()
    # Threads that a library left behind must not keep a process that has already answered.
    os._exit(0)


def _find(entry: str, threads: int) -> Callable[[Marker, str], Record]:
    module, _, name = entry.partition(":")
    found: Callable[[Marker, str], Record] = getattr(importlib.import_module(module), name)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    return found


def _lead_own_family() -> None:
    os.setsid()
    # No terminal reaches this session. Who sends the signal means this process, whatever its ancestors do with it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    family.adopt_orphans()
    # The parent of this process is the fork server, which outlives a killed controller for as long as a child
    # lives: watch both. A signal by the kernel at the parent's death would end this process before its descendants.
    watched: list[int] = []
    with contextlib.suppress(OSError):
        watched.append(os.pidfd_open(os.getppid()))
    controller = parent_process()
    if controller is not None:
        watched.append(controller.sentinel)
    threading.Thread(target=_follow, args=(watched,), daemon=True).start()


def _follow(watched: list[int]) -> None:
    """Die with the first of the watched processes, and take along what was started here."""
    wait(watched)
    family.end(family.descendants(None))
    os.killpg(0, signal.SIGKILL)


def _capture_output(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = os.fdopen(1, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    faulthandler.enable(file=2, all_threads=True)
    faulthandler.register(STACK_SIGNAL, file=2, all_threads=True, chain=False)


def classify(error: BaseException, stage: Stage | None) -> Outcome:
    """The outcome that an exception stands for. Names are those of torch and of torch-spyre."""
    if isinstance(error, KeyboardInterrupt):
        return Outcome(kind=OutcomeKind.KILLED, stage=stage, message="killed by SIGINT from outside", signal="SIGINT")
    text = clip(f"{type(error).__name__}: {error}", 600)
    detail = clip("".join(traceback.format_exception(error)), 12_000)
    return Outcome(kind=_kind(error, str(error), stage), stage=stage, message=text, detail=detail)


def _kind(error: BaseException, text: str, stage: Stage | None) -> OutcomeKind:
    names = {base.__name__ for base in type(error).__mro__}
    if isinstance(error, CheckpointError):
        return OutcomeKind(error.kind)
    if isinstance(error, HarnessError):  # a target or a drill that cannot be: nothing is learnt about the device
        return OutcomeKind.HARNESS_FAULT
    # Libraries that are not written in Python tell the system's sentence in an error of their own.
    if (isinstance(error, OSError) and error.errno in NO_DISK) or any(os.strerror(code) in text for code in NO_DISK):
        return OutcomeKind.UNAVAILABLE
    if isinstance(error, MemoryError) or "DefaultCPUAllocator: can't allocate" in text:
        return OutcomeKind.HOST_OUT_OF_MEMORY
    if "OutOfMemoryError" in names:
        return OutcomeKind.DEVICE_OUT_OF_MEMORY
    if "AcceleratorError" in names or "DeviceError" in names:
        return OutcomeKind.DEVICE_ERROR
    if "Could not run 'aten::" in text or "Spyre backend does not support" in text:
        return OutcomeKind.UNSUPPORTED_OP
    if stage is Stage.LOAD and "model type" in text and "not recognize" in text:
        return OutcomeKind.UNSUPPORTED_ARCHITECTURE
    if stage is Stage.COMPILE or "BackendCompilerFailed" in names or "InductorError" in names:
        return OutcomeKind.COMPILE_ERROR
    return OutcomeKind.RUNTIME_ERROR
