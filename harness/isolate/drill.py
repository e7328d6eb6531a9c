"""Faults of a worker process, injected on purpose where a stage begins."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.records import Drill


def strike(drill: Drill) -> None:
    """Do what the drill says to this process. Actions on the model are the subject's business."""
    action = _ACTIONS.get(drill.action)
    if action is not None:
        action(drill)


def _exit(drill: Drill) -> None:
    os._exit(int(drill.argument or 0))


def _segfault(_: Drill) -> None:
    ctypes.string_at(0)


def _abort(_: Drill) -> None:
    os.abort()


def _kill(_: Drill) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang(_: Drill) -> None:
    while True:
        time.sleep(60)


def _spin(_: Drill) -> None:
    """Busy for ever: a stall watchdog sees work, the limit of the stage does not forgive it."""
    while True:
        sum(range(1000))


def _allocate(drill: Drill) -> None:
    block = bytearray(int(drill.argument))
    block[::4096] = b"\x01" * len(block[::4096])  # touch each page: memory counts only once it is used
    time.sleep(3600)


def _grandchild(drill: Drill) -> None:
    """A process in a session of its own that ignores SIGTERM and holds a lock file, and a parent that hangs."""
    code = (
        "import fcntl, os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid();"
        "lock = open(sys.argv[1], 'w'); fcntl.flock(lock, fcntl.LOCK_EX); lock.write(str(os.getpid()));"
        "lock.flush(); time.sleep(3600)"
    )
    subprocess.Popen([sys.executable, "-c", code, drill.argument])
    while not Path(drill.argument).exists() or not Path(drill.argument).stat().st_size:
        time.sleep(0.05)
    _hang(drill)


def _flood(drill: Drill) -> None:
    """Bytes of output, as of a library that warns in a loop."""
    line = "warning: the same thing again and again\n" * 256
    for _ in range(int(drill.argument) // len(line) + 1):
        sys.stdout.write(line)


def _raise(drill: Drill) -> None:
    raise RuntimeError(drill.argument or f"drill at {drill.stage}")


def _device_error(drill: Drill) -> None:
    import torch

    raise torch.AcceleratorError(drill.argument or "drill: the device reports an error")


def _device_memory(drill: Drill) -> None:
    import torch

    raise torch.OutOfMemoryError(drill.argument or "drill: the device has no memory left")


def _host_memory(drill: Drill) -> None:
    raise MemoryError(drill.argument or "drill: the host has no memory left")


def _disk(_: Drill) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "outputs.safetensors")


def _connect(drill: Drill) -> None:
    """Reach for the network, first as Python code does, then as compiled code does."""
    import socket

    host, _, port = drill.argument.partition("/")
    try:
        socket.create_connection((host, int(port)), timeout=2)
    except PermissionError:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.socket(int(socket.AF_INET), int(socket.SOCK_STREAM), 0) >= 0:
            raise ConnectionError("the kernel gave an internet socket to a worker") from None
        raise


_ACTIONS = {
    "exit": _exit,
    "segfault": _segfault,
    "abort": _abort,
    "kill": _kill,
    "hang": _hang,
    "spin": _spin,
    "allocate": _allocate,
    "grandchild": _grandchild,
    "flood": _flood,
    "raise": _raise,
    "device_error": _device_error,
    "device_memory": _device_memory,
    "host_memory": _host_memory,
    "disk": _disk,
    "connect": _connect,
}
