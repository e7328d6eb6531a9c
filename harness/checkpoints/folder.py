"""Brings a checkpoint that lies in a local directory: nothing is copied, all is checked."""

from __future__ import annotations

from pathlib import Path

from harness.checkpoints.cache import Cache, Kept
from harness.checkpoints.selection import select
from harness.checkpoints.structure import invalid
from harness.records import FolderSource


def locate(source: FolderSource, base: Path) -> Path:
    """Return the directory that the row means, absolute."""
    return (base / Path(source.folder).expanduser()).absolute()


def origin_of(source: FolderSource) -> str:
    """Return the name that reports show: the last part of the path, not where it lies."""
    return f"folder:{Path(source.folder).name or source.folder}"


def bring(source: FolderSource, cache: Cache, base: Path, *, refresh: bool) -> Kept:
    """Return the hashed files of the folder that make up the checkpoint."""
    folder = locate(source, base)
    if not folder.is_dir():
        raise invalid(origin_of(source), f"there is no directory {folder}; correct 'folder' in the row")
    names = select(
        (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()),
        allow_pickle=True,
    )
    return Kept(
        origin=origin_of(source),
        folder=str(folder),
        files=cache.stamps(folder).facts(folder, names, refresh=refresh),
        evictable=False,
    )
