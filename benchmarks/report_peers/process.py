"""What a command cost: time, processor time and memory of it and of the processes that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Spent:
    """The cost of one command, or of two in turn."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds, user and system together."""
    peak: int
    """Resident bytes of the largest process at its peak."""
    ended: bool = True
    """False for a command that was stopped at its limit, or failed."""
    said: str = ""
    """Last line of the output."""

    def agreeing(self, other: Spent) -> Spent:
        """This cost, if both sessions counted the same results. Raises AssertionError otherwise."""
        counts = [one.said.partition(" in ")[0] for one in (self, other)]
        assert not self.ended or counts[0] == counts[1], f"not the same results: {counts}"
        return self

    def without(self, other: Spent) -> Spent:
        """The cost beyond another's; memory is not subtracted."""
        return replace(self, wall=self.wall - other.wall, cpu=self.cpu - other.cpu)

    def then(self, other: Spent) -> Spent:
        """Both in turn."""
        ended = self.ended and other.ended
        return Spent(self.wall + other.wall, self.cpu + other.cpu, max(self.peak, other.peak), ended)


def spent(
    command: Sequence[str], limit: float, folder: Path, variables: Mapping[str, str], allowed: Sequence[int] = (0,)
) -> Spent:
    """Run a command to its end, or to the limit in seconds. Its output goes to stderr where it fails."""
    started = time.monotonic()
    log = folder / ".output"
    environment = {**os.environ, **variables}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        watch = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))
        watch.start()
        # wait4 tells what this child and its children took; Popen.wait does not.
        _, status, usage = os.wait4(process.pid, 0)
        watch.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    tail = log.read_bytes()[-2000:].decode(errors="replace")
    if process.returncode not in allowed:
        sys.stderr.write(f"{command[0]}: exit status {process.returncode}\n{tail}\n")
    log.unlink()
    wall, cpu = time.monotonic() - started, usage.ru_utime + usage.ru_stime
    return Spent(wall, cpu, usage.ru_maxrss * 1024, process.returncode in allowed, (tail.splitlines() or [""])[-1])
