"""Work for isolated processes in the tests: each misbehaves in its own way."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from harness.isolate.child import Marker
from harness.records import Record, Stage


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
    os.kill(os.getpid(), signal.Signals[request])
    time.sleep(600)
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


def crash_beside_grandchild(mark: Marker, request: str) -> Answer:
    """Dies at once, of a grandchild in a session of its own that nobody has seen yet; its parent is gone too."""
    code = "import os, sys, time; os.fork() and os._exit(0); os.setsid(); time.sleep(600)"
    between = subprocess.Popen([sys.executable, "-S", "-c", code])
    between.wait()
    (orphan,) = psutil.Process().children()
    Path(request).write_text(str(orphan.pid))
    os.abort()


def connect_out(mark: Marker, request: str) -> Answer:
    """Every way out that a process has; tells what became of each."""
    import socket

    libc = ctypes.CDLL(None, use_errno=True)
    ways = {
        "connect": lambda: socket.create_connection(("127.0.0.1", int(request)), timeout=2),
        "udp": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
        "name": lambda: socket.getaddrinfo("example.org", 443),
        "unix": lambda: socket.socketpair()[0].close(),
        "libc": lambda: f"returns {libc.socket(2, 1, 0)}, errno {ctypes.get_errno()}",
        "child": lambda: _reach_from_another_program(request),
    }
    return Answer(text="; ".join(f"{name}: {_told(way)}" for name, way in ways.items()))


def _told(way) -> str:
    try:
        return f"{way() or 'works'}"
    except OSError as error:
        return f"{type(error).__name__} {str(error)[:45]}"


def _reach_from_another_program(port: str) -> str:
    code = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=2)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else "connected"


def threaded_product(mark: Marker, request: str) -> Answer:
    import torch

    mark(Stage.RUN)
    square = torch.ones(768, 768)
    return Answer(text=f"{float((square @ square).sum()):.0f} {torch.get_num_threads()}")


def babble(mark: Marker, request: str) -> Answer:
    """Bytes that are no message, where the answer should be."""
    mark(Stage.RUN)
    import pickle

    mark._connection.send_bytes(pickle.dumps({"not": "json"}) if request == "pickle" else request.encode())
    time.sleep(600)
    return Answer(text="unreachable")


def work_silently(mark: Marker, request: str) -> Answer:
    """Busy longer than a stall is allowed to be, without a word."""
    mark(Stage.RUN)
    end = time.monotonic() + float(request)
    while time.monotonic() < end:
        sum(range(10_000))
    return Answer(text="done")


def write_slowly(mark: Marker, request: str) -> Answer:
    """Idle, with a word now and then."""
    mark(Stage.RUN)
    for _ in range(int(request)):
        time.sleep(0.5)
        print("still here", flush=True)
    return Answer(text="done")


def print_much(mark: Marker, request: str) -> Answer:
    mark(Stage.RUN)
    for _ in range(int(request) >> 20):
        print("x" * ((1 << 20) - 1))
    print("the end with SECRET")
    raise RuntimeError("failed with SECRET")


def wait_for_ever(mark: Marker, request: str) -> Answer:
    Path(request).write_text(str(os.getpid()))
    mark(Stage.RUN)
    time.sleep(600)
    return Answer(text="unreachable")


def list_environment(mark: Marker, request: str) -> Answer:
    mark(Stage.RUN)
    return Answer(text=" ".join(name for name in request.split() if name in os.environ))
