"""Cutting long texts so that their head and their tail stay."""

from __future__ import annotations

from pathlib import Path


def clip(text: str, limit: int) -> str:
    """``text``, or its head and tail with a note of what was left out; at most ``limit`` characters or so."""
    if len(text) <= limit:
        return text
    head = limit // 3
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit:,} characters left out …]\n{text[-tail:]}"


def tail(path: Path, limit: int) -> str:
    """The last ``limit`` bytes of a file as text; empty when there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - limit))
        return stream.read().decode(errors="backslashreplace").strip()
