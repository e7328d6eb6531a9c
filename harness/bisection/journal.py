"""What a search has asked so far, on disk as it is answered, so that it survives an interruption."""

from __future__ import annotations

import json
import os
from pathlib import Path

from harness.errors import StoredDataError, UsageError


class Journal:
    """Answers by combination, in the order in which they were given. One line of JSON each."""

    def __init__(self, path: Path | None, subject: str) -> None:
        """Open or begin a journal of one subject (the case and the ends). Without a path it is kept in memory.

        Raises UsageError when the file belongs to another subject.
        """
        self.path = path
        self.answers: dict[str, list[tuple[str, str]]] = {}
        if path is None:
            return
        if path.exists():
            self._read(path, subject)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"subject": subject})

    def _read(self, path: Path, subject: str) -> None:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) != len(data):
            os.truncate(path, len(whole))  # a line that was being written when the search was killed
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
            found = lines[0]["subject"] if lines else None
            for line in lines[1:]:
                self._keep(line["key"], line["reading"], line["detail"])
        except (ValueError, KeyError, TypeError):
            raise StoredDataError(f"{path}: is no journal of a bisection; remove it and start again") from None
        if found is None:
            self._append({"subject": subject})
        elif found != subject:
            raise UsageError(f"{path}: belongs to {found!r}, not to {subject!r}; give another --out")

    def add(self, key: str, reading: str, detail: str) -> None:
        """Keep an answer, on disk before it is used."""
        self._keep(key, reading, detail)
        self._append({"key": key, "reading": reading, "detail": detail})

    def _keep(self, key: str, reading: str, detail: str) -> None:
        self.answers.setdefault(key, []).append((reading, detail))

    def _append(self, line: dict[str, str]) -> None:
        if self.path is None:
            return
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
