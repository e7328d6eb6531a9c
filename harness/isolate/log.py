"""The captured output of a process: bounded while it grows, cut and cleaned when it has ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

KEPT = 1 << 20
"""Bytes of a log that are kept: a third from its head, the rest from its tail."""
GROWN = 64 << 20
"""Bytes at which a log is shortened while its process still writes."""


def size(path: Path) -> int:
    """Bytes of the log; 0 when there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def shorten(path: Path, limit: int = KEPT) -> None:
    """Cut the middle out of a log of more than ``limit`` bytes, in place: its process appends to the same file."""
    with contextlib.suppress(OSError), path.open("r+b") as stream:
        length = stream.seek(0, os.SEEK_END)
        if length <= limit:
            return
        head, tail = limit // 3, limit - limit // 3
        stream.seek(length - tail)
        end = stream.read(tail)
        stream.seek(head)
        stream.write(f"\n[… {length - limit:,} bytes left out …]\n".encode())
        stream.write(end)
        stream.truncate()


def clean(path: Path, change: Callable[[str], str]) -> None:
    """Take secrets out of a log whose process has ended. A log without any is left as it is."""
    with contextlib.suppress(OSError):
        text = path.read_text(errors="backslashreplace")
        changed = change(text)
        if changed != text:
            path.write_text(changed)
