"""Hashes of files, remembered as long as a file's inode says that it was not touched."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.records import FileFact

CHUNK = 1 << 20


def sha256_of(path: Path) -> str:
    """Return the sha256 of the file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def git_sha1_of(path: Path) -> str:
    """Return the file's Git object id: sha1 of ``blob <size>\\0`` and the bytes."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def digest_of(files: Sequence[FileFact]) -> str:
    """Return the sha256 over names and hashes, the key under which references are kept."""
    rows = [[fact.name, fact.sha256] for fact in sorted(files, key=lambda fact: fact.name)]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Replace PATH with TEXT in one step: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class Stamps:
    """Hashes of a folder's files, each with the state of the inode at the time.

    Any write changes ctime, so an unchanged stamp means unchanged bytes as far as the file system
    knows. ``refresh`` reads everything again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def facts(self, folder: Path, names: Iterable[str], *, refresh: bool = False) -> tuple[FileFact, ...]:
        """Return name, size and sha256 of each file, hashing only what changed since the last time."""
        known = {} if refresh else self._read()
        rows: dict[str, list[Any]] = {}
        for name in sorted(names):
            stat = (folder / name).stat()
            state = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
            before = known.get(name)
            unchanged = isinstance(before, list) and before[:4] == state
            rows[name] = [*state, before[4] if unchanged and before else sha256_of(folder / name)]
        if rows != known:
            with contextlib.suppress(OSError):  # only an optimisation: a full or read-only cache costs a rehash
                write_atomically(self.path, json.dumps(rows))
        return tuple(FileFact(name=name, size=row[0], sha256=row[4]) for name, row in rows.items())

    def _read(self) -> dict[str, Any]:
        try:
            rows = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return rows if isinstance(rows, dict) else {}
