"""The harness' own cache of checkpoints: where things lie, what is in use, what goes when room is needed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness.checkpoints import locks
from harness.checkpoints.hashing import Stamps, write_atomically
from harness.errors import CheckpointError, NoRoomError
from harness.records import Checkpoint, FileFact, OutcomeKind, Record

RESERVE = 200 * 10**6
"""Bytes that stay free on the disk, for results and logs."""
SWEEP_SECONDS = 120.0
"""How long the deletion of what killed processes left may take."""
DISK_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOTDIR, errno.ENOLCK}
)

_held: dict[str, list[int]] = {}
"""Folders that this process uses, a lock for each use, kept until it ends or `release` is called."""
_holding = threading.Lock()


class Kept(Record):
    """What the cache knows of one checkpoint: written when it was verified, touched when it is used."""

    origin: str
    folder: str
    """Where the files lie: inside this cache, or a snapshot in the Hugging Face cache."""
    files: tuple[FileFact, ...]
    evictable: bool = True
    """False for a snapshot that was there before the harness came: it is the user's."""


class Item(NamedTuple):
    """Something that may be evicted."""

    record: Path
    folder: Path
    size: int
    used: float


class Cache:
    """A directory of checkpoints, capped at LIMIT bytes (None: by the disk alone)."""

    def __init__(self, root: Path, limit: int | None = None) -> None:
        self.root = root.expanduser().absolute()
        self.limit = limit

    def record(self, key: str) -> Path:
        """Return where the record of KEY lies."""
        return self.root / "records" / f"{key}.json"

    def entry(self, key: str) -> Path:
        """Return the folder of an extracted or converted checkpoint."""
        return self.root / "entries" / key

    def lock(self, key: str) -> Path:
        """Return the lock under which KEY is built or evicted."""
        return self.root / "locks" / f"{key}.lock"

    def use_lock(self, folder: Path) -> Path:
        """Return the lock that users of FOLDER share."""
        name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:32]
        return self.root / "locks" / f"use-{name}.lock"

    def stamps(self, folder: Path) -> Stamps:
        """Return the remembered hashes of FOLDER."""
        name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:32]
        return Stamps(self.root / "stamps" / f"{name}.json")

    def read(self, key: str) -> Kept | None:
        """Return the record of KEY; None if there is none that can be read."""
        try:
            return Kept.model_validate_json(self.record(key).read_bytes())
        except (OSError, ValueError):
            return None

    def write(self, key: str, kept: Kept) -> None:
        """Store the record of KEY."""
        write_atomically(self.record(key), kept.model_dump_json())

    def touch(self, key: str) -> None:
        """Note that KEY is used now."""
        with contextlib.suppress(OSError):  # a shared cache may belong to another user
            os.utime(self.record(key))

    def damage(self, kept: Kept, *, refresh: bool = False) -> str | None:
        """Return what is wrong with the files of KEPT, naming one; None when all are as they were verified."""
        folder = Path(kept.folder)
        for fact in kept.files:
            path = folder / fact.name
            if not path.is_file():
                return f"{fact.name} is missing"
            if path.stat().st_size != fact.size:
                return f"{fact.name} has {path.stat().st_size} bytes and should have {fact.size}"
        found = self.stamps(folder).facts(folder, [fact.name for fact in kept.files], refresh=refresh)
        for before, now in zip(sorted(kept.files, key=lambda fact: fact.name), found, strict=True):
            if before.sha256 != now.sha256:
                return f"{now.name} has sha256 {now.sha256[:12]}… and should have {before.sha256[:12]}…"
        return None

    @contextlib.contextmanager
    def workshop(self) -> Iterator[Path]:
        """Give a fresh directory on the cache's own file system, gone afterwards: build here, then rename.

        Directories of processes that were killed are swept when the next one is made.
        """
        place = self.root / "building"
        place.mkdir(parents=True, exist_ok=True)
        with locks.exclusive(self.root / "locks" / "building.lock", timeout=SWEEP_SECONDS):
            for left in place.iterdir():
                if not locks.is_directory_held(left):
                    shutil.rmtree(left, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(dir=place))
            handle = locks.hold_directory(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(handle)

    def publish(self, built: Path, key: str) -> Path:
        """Move a finished folder to the entry of KEY, in one step, in place of a damaged one."""
        target = self.entry(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        self._remove(target)
        built.rename(target)
        return target

    def _remove(self, folder: Path) -> None:
        """Delete FOLDER so that nobody ever sees half of it."""
        if not folder.exists():
            return
        with self.workshop() as bin_:
            folder.rename(bin_ / "gone")

    # ---- room

    def make_room(self, needed: int, *, key: str | None = None, place: Path | None = None) -> None:
        """Make sure that NEEDED bytes fit at PLACE, evicting what was not used for longest.

        They count as taken while the lock of KEY, for which they are, is held. What is in use or belongs to
        the user stays. Raises CheckpointError (unavailable) when nothing more may go; NoRoomError when it
        would be enough to wait for what is in use.
        """
        place = place or self.root
        with locks.exclusive(self.root / "locks" / "room.lock", timeout=SWEEP_SECONDS):
            oldest_first = sorted(self._items(), key=lambda item: item.used)
            for item in [None, *oldest_first]:
                if item is not None:
                    self._evict(item)
                promised = self._promised(key)
                over = 0 if self.limit is None else self.size() + promised + needed - self.limit
                short = needed + promised + RESERVE - free_bytes(place)
                if over <= 0 and short <= 0:
                    self._promise(key, needed)
                    return
        in_use = self.size() + promised
        error = NoRoomError if in_use >= max(over, short) else CheckpointError
        capped = f" (the cap is {_mb(self.limit)})" if self.limit is not None and over > 0 else ""
        raise error(
            f"no room for {_mb(needed)} at {place}: {_mb(free_bytes(place))} free, the cache holds {_mb(in_use)}"
            f"{capped} and the rest of it is in use; free space or move the cache",
            OutcomeKind.UNAVAILABLE,
        )

    def _promise(self, key: str | None, needed: int) -> None:
        if key is not None and needed:
            write_atomically(self.root / "promised" / key, str(needed))  # a full disk leaves no half of a number

    def _promised(self, own: str | None) -> int:
        """Return the bytes for which others were given room and that may still be on their way."""
        total = 0
        for promise in (self.root / "promised").glob("[!.]*"):
            if promise.name == own:
                continue
            if locks.is_held(self.lock(promise.name)):
                total += int(promise.read_text())
            else:  # its builder has ended, one way or the other
                promise.unlink()
        return total

    def size(self) -> int:
        """Return the bytes of all that may be evicted in principle."""
        return sum(item.size for item in self._items())

    def _items(self) -> list[Item]:
        items = []
        for record in sorted((self.root / "records").glob("*.json")):
            kept = self.read(record.stem)
            if kept is not None and kept.evictable:
                size = sum(fact.size for fact in kept.files)
                items.append(Item(record, Path(kept.folder), size, record.stat().st_mtime))
        for wheel in sorted((self.root / "wheels").glob("*/*.whl")):
            stat = wheel.stat()
            items.append(Item(wheel, wheel.parent, stat.st_size, stat.st_mtime))
        return items

    def _evict(self, item: Item) -> None:
        """Delete ITEM unless it is being built or used."""
        key = item.folder.name if item.record.suffix == ".whl" else item.record.stem
        with locks.at_once(self.lock(key)) as unbuilt, locks.at_once(self.use_lock(item.folder)) as unused:
            if not (unbuilt and unused):
                return
            item.record.unlink(missing_ok=True)
            if item.folder.is_relative_to(self.root):
                self._remove(item.folder)
            else:
                _delete_snapshot(item.folder)

    def hold(self, folder: Path) -> None:
        """Keep FOLDER from being evicted until this process ends or releases it as often as it was held."""
        with _holding:
            try:
                _held.setdefault(str(folder), []).append(locks.share(self.use_lock(folder)))
            except OSError as error:
                if error.errno not in locks.UNWRITABLE:  # what may not be written is not evicted
                    raise


@contextlib.contextmanager
def hold(checkpoint: Checkpoint, cache: Path) -> Iterator[None]:
    """Keep a checkpoint that another process resolved from being evicted while the block runs."""
    handle = locks.share(Cache(cache).use_lock(Path(checkpoint.folder)))
    try:
        yield
    finally:
        os.close(handle)


def release(checkpoint: Checkpoint | None = None) -> None:
    """Let go of one use of CHECKPOINT, or of all that this process resolved: unused, it may be evicted."""
    with _holding:
        if checkpoint is None:
            handles = [handle for held in _held.values() for handle in held]
            _held.clear()
        else:
            held = _held.get(checkpoint.folder, [])
            handles = [held.pop()] if held else []
            if not held:
                _held.pop(checkpoint.folder, None)
        for handle in handles:
            os.close(handle)


def free_bytes(place: Path) -> int:
    """Return the free bytes of the file system that PLACE is on or will be made on."""
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


@contextlib.contextmanager
def disk_errors_as_unavailable(place: Path) -> Iterator[None]:
    """Turn an OSError that tells of the disk, full or not to be written, into CheckpointError (unavailable)."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        raise CheckpointError(
            f"{error.filename or place}: {error.strerror}; free space there or move the cache",
            OutcomeKind.UNAVAILABLE,
        ) from error


def _delete_snapshot(folder: Path) -> None:
    """Delete a snapshot from the Hugging Face cache, with the blobs that no other revision uses."""
    from huggingface_hub import scan_cache_dir

    scan_cache_dir(folder.parents[2]).delete_revisions(folder.name).execute()


def _mb(count: int | None) -> str:
    return f"{(count or 0) / 1e6:,.0f} MB"
