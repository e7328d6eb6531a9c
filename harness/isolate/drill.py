"""Faults of a worker process, injected on purpose where a stage begins."""

from __future__ import annotations

import ctypes
import os
import time

from harness.records import Drill


def strike(drill: Drill) -> None:
    """Do what the drill says to this process. Actions on the model are the subject's business."""
    if drill.action == "exit":
        os._exit(int(drill.argument or 0))
    elif drill.action == "segfault":
        ctypes.string_at(0)
    elif drill.action == "abort":
        os.abort()
    elif drill.action == "hang":
        while True:
            time.sleep(60)
    elif drill.action == "allocate":
        _hold_memory(int(drill.argument))
    elif drill.action == "raise":
        raise RuntimeError(drill.argument or f"drill at {drill.stage}")


def _hold_memory(size: int) -> None:
    block = bytearray(size)
    block[::4096] = b"\x01" * len(block[::4096])  # touch each page: memory counts only once it is used
    time.sleep(3600)
