"""References and controls kept by content: made once per key, verified whenever they are read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from harness.checkpoints import locks
from harness.checkpoints.hashing import sha256_of
from harness.errors import CheckpointError
from harness.records import Case, Checkpoint, Dtype, Observation, OutcomeKind, Record, Role

TENSORS = "outputs.safetensors"
ENTRY = "entry.json"
SUMS = "SHA256SUMS"
"""Hashes of the two, as ``sha256sum`` writes and checks them."""
FORM = "2"
"""Of a stored entry. Part of its key: what another harness stored is made anew, not called altered."""
SKEW = 300.0
"""Seconds by which clocks of machines that share a store may differ."""
MAKERS = ("subject.py", "workloads/*.py", "checkpoints/load.py", "checkpoints/fingerprint.py")
"""Files of this package whose code decides what a stored observation holds."""


class Entry(Record):
    """The record beside the stored tensors: where they come from and what was observed."""

    provenance: dict[str, str]
    """Everything that the key was made of, readable."""
    observation: Observation


def provenance(case: Case, checkpoint: Checkpoint, role: Role, dtype: Dtype, stack: dict[str, str]) -> dict[str, str]:
    """Everything that a stored observation depends on. ``stack``: library versions, threads, CPU capability."""
    return {
        "role": role.value,
        "dtype": dtype.value,
        "task": case.task.value,
        "checkpoint": checkpoint.digest,
        "inputs": case.inputs.model_dump_json(),
        "shape": str(case.shape),
        "check": case.check.value if case.check.sets_shape else "outputs",
        "code": code_digest(),
        "form": FORM,
        **stack,
    }


@lru_cache
def code_digest() -> str:
    """Hash of the harness' own code that makes a reference: another way of asking gives other answers."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for pattern in MAKERS:
        for path in sorted(here.glob(pattern)):
            digest.update(path.relative_to(here).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def key(facts: dict[str, str]) -> str:
    """Content key of a provenance."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class ReferenceStore:
    """A folder of entries, shared by runs; size-capped, oldest use evicted first."""

    def __init__(self, root: Path, limit: int = 20 << 30) -> None:
        self.root = root
        self._limit = limit

    def folder(self, name: str) -> Path:
        """Where the entry of a key lies, or would lie."""
        return self.root / name[:2] / name

    def read(self, facts: dict[str, str]) -> Entry | None:
        """The verified entry of a provenance, None when there is none.

        Raises CheckpointError(invalid_reference) for an entry that was altered or belongs elsewhere: a bad
        reference says nothing about the device.
        """
        folder = self.folder(key(facts))
        if not folder.is_dir():
            return None
        try:
            if (folder / SUMS).read_bytes() != _sums(folder):
                raise _invalid(folder, "was altered after it was made: its hash differs")
            entry = Entry.model_validate_json((folder / ENTRY).read_bytes())
        except (OSError, ValidationError) as error:
            raise _invalid(folder, f"cannot be read ({type(error).__name__})") from error
        if entry.provenance != facts:
            raise _invalid(folder, "was made for another checkpoint, input or library version")
        with contextlib.suppress(OSError):  # a store that may only be read
            os.utime(folder)
        return entry

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """An empty folder to write an entry in; removed when it was not published."""
        folder = self.root / f".draft-{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, draft: Path, facts: dict[str, str], observation: Observation) -> Path:
        """Complete a drafted entry and move it to its place; the first of two equal ones wins."""
        entry = Entry(provenance=facts, observation=observation)
        (draft / ENTRY).write_text(entry.model_dump_json(indent=1))
        (draft / SUMS).write_bytes(_sums(draft))
        folder = self.folder(key(facts))
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # somebody else published it first
            draft.rename(folder)
        self._evict()
        return folder

    def forget(self, facts: dict[str, str], before: float) -> None:
        """Remove an entry that was made before a time, in seconds of the epoch, so that it is made anew.

        So is one of the future: it was made before the clock was set back.
        """
        folder = self.folder(key(facts))
        with contextlib.suppress(FileNotFoundError):
            # The oldest file tells: one that was altered afterwards is young.
            made = min((file.stat().st_mtime for file in folder.iterdir()), default=0.0)
            if not before <= made <= time.time() + SKEW:
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def alone(self, facts: dict[str, str], patience: float) -> Iterator[None]:
        """Holds an entry, so that of all threads and processes one makes it and the others find it made.

        Raises CheckpointError(unavailable) when another has held it for ``patience`` seconds.
        """
        with locks.exclusive(self.root / ".locks" / key(facts), timeout=patience):
            yield

    def _evict(self) -> None:
        """Remove the entries longest unused while the store is over its limit, today's excepted."""
        with contextlib.suppress(FileNotFoundError):  # another run is removing the same: its turn then
            for draft in self.root.glob(".draft-*"):  # of runs that were killed
                if not _of_today(draft):
                    shutil.rmtree(draft, ignore_errors=True)
            entries = [folder for folder in self.root.glob("??/*") if folder.is_dir()]
            sizes = {folder: sum(f.stat().st_size for f in folder.iterdir()) for folder in entries}
            excess = sum(sizes.values()) - self._limit
            for folder in sorted(entries, key=lambda f: f.stat().st_mtime):
                if excess > 0 and not _of_today(folder):
                    shutil.rmtree(folder, ignore_errors=True)
                    excess -= sizes[folder]


def _of_today(folder: Path) -> bool:
    return abs(time.time() - folder.stat().st_mtime) < 86_400  # a clock that was set back makes nothing everlasting


def _sums(folder: Path) -> bytes:
    """What the sums of an entry's files are, as a file."""
    return "".join(f"{sha256_of(folder / name)}  {name}\n" for name in (ENTRY, TENSORS)).encode()


def _invalid(folder: Path, what: str) -> CheckpointError:
    message = f"stored reference {folder.name[:12]} {what}. Make it anew with --refresh-reference."
    return CheckpointError(message, OutcomeKind.INVALID_REFERENCE)
