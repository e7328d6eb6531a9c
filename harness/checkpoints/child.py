"""Runs a helper process that ends in bounded time, with everything it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

PIPE_BYTES = 1 << 16
"""Capacity of a pipe on Linux (pipe(7))."""


class Finished(NamedTuple):
    """How a helper process ended."""

    status: int | None
    """Exit status; None when the wall clock ran out and the process group was killed."""
    output: str
    errors: str

    def tail(self, lines: int = 6) -> str:
        """Return the last LINES that are not empty, of both streams together, on one line."""
        text = [line.strip() for line in f"{self.output}\n{self.errors}".splitlines() if line.strip()]
        return " | ".join(text[-lines:])[-1500:]


def run(
    command: Sequence[str], *, timeout: float, request: str = "", environ: Mapping[str, str] | None = None
) -> Finished:
    """Return how COMMAND ended, at most TIMEOUT seconds later.

    It runs in a process group of its own, killed as a whole. Its standard input carries REQUEST and
    stays open until the end, so that a child can tell from end-of-file that its parent died. REQUEST
    fits a pipe, so that a child which never reads cannot block this process.
    """
    assert len(request) < PIPE_BYTES
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=errors, env=environ, start_new_session=True
        )
        status: int | None = None
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(request.encode())
                process.stdin.flush()
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
        return Finished(status, _text(output), _text(errors))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the group of a process that still runs, and reap it."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    process.wait()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
