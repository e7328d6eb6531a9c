"""File locks that a dead process cannot leave behind, with a bounded wait."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from harness.errors import CheckpointError
from harness.records import OutcomeKind

UNWRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""What the system says of a place that may only be read."""


@contextlib.contextmanager
def exclusive(path: Path, *, timeout: float) -> Iterator[None]:
    """Hold the lock at PATH, alone. Raises CheckpointError (unavailable), naming the lock, after TIMEOUT seconds.

    The kernel frees an flock when its process ends, so the file itself may stay for ever.
    """
    handle = _open(path)
    try:
        _wait(handle, path, timeout)
        with contextlib.suppress(OSError):  # who holds it is told for people alone; see `_open`
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def at_once(path: Path) -> Iterator[bool]:
    """Hold the lock at PATH alone if it is free, without waiting; the value says whether it is held."""
    handle = _open(path)
    try:
        yield _try(handle)
    finally:
        os.close(handle)


def share(path: Path) -> int:
    """Return a descriptor that holds PATH together with other sharers until it is closed."""
    handle = _open(path)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def is_held(path: Path) -> bool:
    """Return whether some process holds PATH exclusively. Does not create the file."""
    if not path.exists():
        return False
    with at_once(path) as free:
        return not free


def hold_directory(folder: Path) -> int:
    """Return a descriptor that marks FOLDER as in use until it is closed or the process ends."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def is_directory_held(folder: Path) -> bool:
    """Return whether a process holds FOLDER; one that vanishes meanwhile is not held."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try(handle)
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    """Return a descriptor to lock. A cache that may only be read is locked as well, by the files that it has."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno not in UNWRITABLE or not path.exists():
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(handle: int, path: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    pause = 0.02
    while not _try(handle):
        if time.monotonic() >= deadline:
            holder = os.pread(handle, 32, 0).decode(errors="replace") or "unknown"
            raise CheckpointError(
                f"waited {timeout:.0f} s for the lock {path}, held by process {holder}; "
                "another run works on the same: let it finish or end that process",
                OutcomeKind.UNAVAILABLE,
            )
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)
