"""Writes a run directory: a line per case as it ends, everything else as a whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from harness.errors import StoreError
from harness.records import CaseResult, Run, Status
from harness.store.layout import CASES_FILE, DAMAGED_FILE, RUN_FILE
from harness.store.read import lines_of
from harness.store.tables import write_tables


def new_run_id(now: datetime) -> str:
    """An id that sorts by time: ``20260131T020304Z-1a2b3c``."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def run_id_for(directory: Path, now: datetime) -> str:
    """The id of a run that begins in a directory: the directory's own name where that is an id, else a new one."""
    return directory.name if re.fullmatch(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{6}", directory.name) else new_run_id(now)


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Replace ``path`` by ``data``, or its parts, entirely, or leave it as it was (a full disk included)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            for part in [data] if isinstance(data, bytes) else data:
                stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


class RunWriter:
    """The one writer of a run directory. Safe to call from the threads that wait for cases."""

    def __init__(self, directory: Path, run: Run, clean: Callable[[str], str] = str) -> None:
        """Begin, or go on with, the run in ``directory``. ``clean`` takes secrets out of others' texts.

        Raises StoreError while another process writes there.
        """
        self.directory = directory
        self._clean = clean
        self._run = self._without_secrets(run)
        self._lock = threading.Lock()
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        # A descriptor opened once: a disk that fills later cannot stop us from opening it.
        self._cases = os.open(directory / CASES_FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._be_alone()
            self._last = repair(directory / CASES_FILE)
            self._write_run(self._run)
        except BaseException:
            os.close(self._cases)
            raise

    def append(self, result: CaseResult) -> None:
        """Write one case's line and flush it to the disk."""
        line = (self._text(result) + "\n").encode()
        with self._lock:
            start = os.lseek(self._cases, 0, os.SEEK_END)
            try:
                written = 0
                while written < len(line):
                    written += os.write(self._cases, line[written:])
                os.fsync(self._cases)
            except OSError as error:
                os.ftruncate(self._cases, start)  # never leave half a line before the next one
                raise StoreError(
                    f"{self.directory / CASES_FILE}: cannot write the result of {result.case.id}: "
                    f"{error.strerror}. Results before it are kept; free space and use --resume."
                ) from error
            self._last[result.case.id] = start

    def finish(self, finished: datetime, exit_status: int, seconds: dict[str, float] | None = None) -> Run:
        """Write totals and tables; returns the finished run. ``seconds``: where its time went."""
        totals: Counter[Status] = Counter()
        write_tables(self.directory, self._results(totals))
        ended = {"finished": finished, "exit_status": exit_status, "totals": dict(totals), "seconds": seconds or {}}
        run = self._run.model_copy(update=ended)
        self._write_run(run)
        self.close()
        return run

    def close(self) -> None:
        """Give the directory free, finished or not."""
        handle, self._cases = self._cases, -1
        if handle >= 0:
            os.close(handle)

    def _results(self, totals: Counter[Status]) -> Iterator[CaseResult]:
        """The result that holds of each case, one in memory at a time."""
        for line in lines_of(self.directory / CASES_FILE):
            if line.result and self._last[line.result.case.id] == line.offset:
                totals[line.result.verdict.status] += 1
                yield line.result

    def _be_alone(self) -> None:
        try:
            fcntl.flock(self._cases, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(
                f"{self.directory}: another process is writing this run. Let it finish, or name another --run-dir."
            ) from error

    def _write_run(self, run: Run) -> None:
        write_atomically(self.directory / RUN_FILE, _parts_of(run))

    def _without_secrets(self, run: Run) -> Run:
        """The run without secrets in anything but the plan: variables hold addresses, and these credentials."""
        told: dict[str, Any] = _each_text(run.model_dump(mode="json", exclude={"plan"}), self._clean)
        return Run.model_validate({**told, "plan": run.plan})

    def _text(self, result: CaseResult) -> str:
        """The result as JSON, without secrets in anything but the case, which comes from the manifest."""
        text = result.model_dump_json()
        if self._clean(text) == text:
            return text
        told: dict[str, Any] = _each_text(result.model_dump(mode="json", exclude={"case"}), self._clean)
        return CaseResult.model_validate({**told, "case": result.case}).model_dump_json()


def _parts_of(run: Run) -> Iterator[bytes]:
    """run.json with a line per planned case, so that a plan of many thousand is never one text in memory."""
    text = run.model_copy(update={"plan": ()}).model_dump_json(indent=1)
    before, after = text.split('"plan": []', 1)
    yield f'{before}"plan": ['.encode()
    for number, case in enumerate(run.plan):
        yield (",\n  " if number else "\n  ").encode() + case.model_dump_json().encode()
    yield f"\n ]{after}".encode()


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): _each_text(item, change) for key, item in value.items()}
    return value


def repair(path: Path) -> dict[str, int]:
    """Where the result that holds of each case begins, by case id.

    Makes what is appended next start on a line of its own: completes a whole last line, cuts a torn one. Lines that
    cannot be read are set aside, in `DAMAGED_FILE` beside: their cases are run again, and the run is whole then.
    """
    last: dict[str, int] = {}
    unread: list[int] = []
    for line in lines_of(path):
        if line.result is None:
            unread.append(line.offset)
        else:
            last[line.result.case.id] = line.offset
    with path.open("rb+") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - 1))
        if size and stream.read(1) != b"\n":
            torn = unread.pop() if unread and unread[-1] > max(last.values(), default=-1) else None
            if torn is None:
                stream.write(b"\n")
            else:
                stream.truncate(torn)
        _set_aside(stream, unread, path.with_name(DAMAGED_FILE))
    return last


def _set_aside(stream: BinaryIO, offsets: list[int], aside: Path) -> None:
    """Copy the lines at these offsets to ``aside``, and leave blank ones in their place."""
    if not offsets:
        return
    lines = []
    for offset in offsets:
        stream.seek(offset)
        lines.append(stream.readline())
    with aside.open("ab") as kept:
        kept.writelines(lines)
        kept.flush()
        os.fsync(kept.fileno())
    for offset, line in zip(offsets, lines, strict=True):
        stream.seek(offset)
        stream.write(b" " * (len(line) - 1) + b"\n")
    stream.flush()
    os.fsync(stream.fileno())


def _sync_directory(directory: Path) -> None:
    """Make a new name in a directory last as its file does."""
    with contextlib.suppress(OSError):  # some network file systems cannot
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
