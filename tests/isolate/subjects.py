"""Work for isolated processes in the tests: each misbehaves in its own way."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.isolate.child import Marker
from harness.records import Outcome, OutcomeKind, Record, Stage


class Answer(Record):
    text: str


def echo(mark: Marker, request: str) -> Answer:
    mark(Stage.LOAD)
    mark(Stage.RUN)
    print("out of the child")
    return Answer(text=request)


def vanish(mark: Marker, request: str) -> Answer:
    mark(Stage[request])
    os._exit(0)


def segfault(mark: Marker, request: str) -> Answer:
    mark(Stage[request])
    ctypes.string_at(0)
    return Answer(text="unreachable")


def hang(mark: Marker, request: str) -> Answer:
    mark(Stage[request])
    time.sleep(600)
    return Answer(text="unreachable")


def shoot_itself(mark: Marker, request: str) -> Answer:
    mark(Stage.RUN)
    os.kill(os.getpid(), signal.SIGKILL)
    return Answer(text="unreachable")


def raise_named(mark: Marker, request: str) -> Answer:
    mark(Stage.RUN)
    if request == "memory":
        raise MemoryError("1 TiB")
    if request == "unsupported":
        raise NotImplementedError("Could not run 'aten::amin.out' with arguments from the 'spyre' backend.")
    raise SystemExit(0)


def grow(mark: Marker, request: str) -> Answer:
    mark(Stage.LOAD)
    block = bytearray(int(request))
    block[::4096] = b"\x01" * len(block[::4096])
    time.sleep(600)
    return Answer(text="unreachable")


def leave_grandchild(mark: Marker, request: str) -> Answer:
    """A grandchild in a session of its own that ignores SIGTERM and tells its pid."""
    code = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid(); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code])
    Path(request).write_text(str(child.pid))
    mark(Stage.RUN)
    time.sleep(600)
    return Answer(text="unreachable")


def connect_out(mark: Marker, request: str) -> Outcome:
    import socket

    try:
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    except PermissionError as error:
        return Outcome(kind=OutcomeKind.COMPLETED, message=str(error))
    except OSError as error:
        return Outcome(kind=OutcomeKind.RUNTIME_ERROR, message=f"reached the network: {error}")
    return Outcome(kind=OutcomeKind.RUNTIME_ERROR, message="connected")


def threaded_product(mark: Marker, request: str) -> Answer:
    import torch

    mark(Stage.RUN)
    square = torch.ones(768, 768)
    return Answer(text=f"{float((square @ square).sum()):.0f} {torch.get_num_threads()}")
