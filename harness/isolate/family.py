"""The processes that a process started: who they are, whatever became of those between, and their end."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on a descendant whose parent dies becomes a child of this process, not of init; see prctl(2)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children(pid: int | None, *, recursive: bool = False) -> list[psutil.Process]:
    """Live children of a process, in whatever session; none of a process that is gone. ``None``: of this process."""
    try:
        return psutil.Process(pid).children(recursive)
    except psutil.Error:
        return []


def descendants(pid: int | None) -> list[psutil.Process]:
    """Children of a process, their children, and so on."""
    return children(pid, recursive=True)


def session_members(leader: int) -> set[int]:
    """Live processes in the session that ``leader`` began: those that outlived it included."""
    members = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader and not _zombie(pid):
                members.add(pid)
    return members


def end(processes: Iterable[psutil.Process]) -> None:
    """Kill each of them that is still there."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
