"""Captured output copied into the site as plain text: complete, visible, without machine paths."""

from __future__ import annotations

import io
import os
import shlex
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.records import CaseResult, Role, Status
from harness.report.chunks import Tree
from harness.report.details import switched
from harness.report.text import excerpt, file_name, visible, without_machine_paths

EXCERPT = 12_000
"""Bytes of a log on the page, head and tail."""
BLOCK = 1 << 20
PASSING_LOG = 64_000
"""Larger logs of passing cases stay in the run directory."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """Copies the files of one run that its pages link to into the site."""

    directory: Path | None
    reproducers: Mapping[str, Path]
    tree: Tree

    def reproducer(self, result: CaseResult) -> dict[str, Any] | None:
        """Copy the case's reproducer, a folder as one zip file; its path, size and command. None without one."""
        source = self.reproducers.get(result.case.id)
        if source is None or not source.exists() or not _is_inside(source, self.directory or source.parent):
            return None
        data = _zipped(source) if source.is_dir() else source.read_bytes()
        name = file_name(result.case.id, ".zip" if source.is_dir() else source.suffix)
        self.tree.write(f"repro/{name}", data)
        unpack = f"python -m zipfile -e {shlex.quote(name)} . && " if source.is_dir() else ""
        script = f"{source.name}/reproduce.py" if source.is_dir() else name
        switches = switched(result.observations.get(Role.CANDIDATE))
        command = f"{unpack}{switches}python {shlex.quote(script)}"
        return {"path": f"repro/{name}", "size": len(data), "command": command}

    def log(self, result: CaseResult) -> dict[str, Any] | None:
        """Copy the case's log; its path in the site, its size and an excerpt. None when there is none."""
        source = self._find(result.log)
        if source is None:
            return None
        size = source.stat().st_size
        if result.verdict.status is Status.PASS and size > PASSING_LOG:
            return {"size": size, "path": None, "text": excerpt(source, EXCERPT)}
        name = f"logs/{file_name(result.case.id, '.txt')}"
        self._copy(source, name)
        return {"size": size, "path": name, "text": excerpt(source, EXCERPT)}

    def _find(self, log: str | None) -> Path | None:
        """The log file, if it lies inside the run directory: a result must not name any other file."""
        if not log or self.directory is None:
            return None
        path = self.directory / log
        return path if _is_inside(path, self.directory) and path.is_file() else None

    def _copy(self, source: Path, name: str) -> None:
        """Copy in blocks that end at white space, so that no path is split between two."""
        target = self.tree.write(name, b"")
        rest = ""
        with source.open(encoding="utf-8", errors="replace") as text, target.open("wb") as out:
            while block := text.read(BLOCK):
                block = rest + block
                end = max(block.rfind("\n"), block.rfind(" ")) + 1 or len(block)
                block, rest = block[:end], block[end:]
                out.write(visible(without_machine_paths(block)).encode())
            out.write(visible(without_machine_paths(rest)).encode())
        self.tree.size += target.stat().st_size


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether a path stays in a folder, links followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _zipped(folder: Path) -> bytes:
    """The folder as a zip file with fixed dates: the same folder gives the same bytes. Links that leave it stay out."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and _is_inside(path, folder):
                entry = zipfile.ZipInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())
    return stream.getvalue()
