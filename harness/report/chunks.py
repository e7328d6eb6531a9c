"""Data as scripts: browsers refuse to fetch from file://, but run ``report.data(name, value)``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.report.numbers import dumps

CHUNK_BYTES = 400_000
"""Details of neighbouring models share a file of about this size: few files, small downloads."""


@dataclass(slots=True)
class Tree:
    """The files of a site while it is written, counted."""

    root: Path
    files: int = 0
    size: int = 0
    """Bytes."""
    _folders: set[Path] = field(default_factory=set)

    def write(self, name: str, content: str | bytes) -> Path:
        """Write one file below the root and count it."""
        path = self.root / name
        if path.parent not in self._folders:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(path.parent)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)
        self.files += 1
        self.size += len(data)
        return path

    def data(self, name: str, value: Any) -> None:
        """Write ``data/<name>.js``."""
        self.text_chunk(name, dumps(value))

    def text_chunk(self, name: str, text: str) -> None:
        """Write ``data/<name>.js`` from a value that is strict JSON text already."""
        self.write(f"data/{name}.js", f'report.data("{name}",{text});\n')


def packed(sizes: Iterable[int], limit: int = CHUNK_BYTES) -> list[int]:
    """Index of the first item of each chunk when items of these sizes are packed in order."""
    starts: list[int] = []
    filled = limit
    for position, size in enumerate(sizes):
        if filled + size > limit:
            starts.append(position)
            filled = 0
        filled += size
    return starts
