"""The supervisor: starts an isolated process, watches it, ends it, and says what happened."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil

from harness.isolate import child, family
from harness.isolate.log import GROWN, clean, shorten, size
from harness.isolate.server import Server
from harness.isolate.text import tail
from harness.records import Drill, Outcome, OutcomeKind, Stage

SAMPLE_SECONDS = 0.25
"""How often memory and descendants of a process are looked at."""
GRACE_SECONDS = 5.0
"""How long a process that has answered may take to exit, and a killed group to vanish."""
LOG_TAIL = 4_000
"""Bytes of a dead process' log that its outcome keeps."""
STALL_SECONDS = 300.0
"""torch-spyre's own runner takes so long a silence for a stall (run-test-suite/action.yml)."""
IDLE_CPU = 0.02
"""Share of one core below which a process that also writes nothing makes no progress."""
ANSWER_BYTES = 1 << 30
INTERRUPTED = "the run was interrupted while it ran"


@dataclass(frozen=True)
class Limits:
    """Bounds of one isolated process."""

    timeouts: Mapping[Stage, float]
    """Seconds a stage may take. A stage that is not named inherits `default`."""
    default: float = 900.0
    memory: int | None = None
    """Resident bytes of the process and its descendants; None: no limit."""
    stall: float = STALL_SECONDS
    """Seconds without a stage mark, output or work of the processor."""

    def of(self, stage: Stage | None) -> float:
        return self.timeouts.get(stage, self.default) if stage else self.default


@dataclass
class Ended:
    """How an isolated process ended. Either `value` (JSON of the answer) or a failed `outcome`."""

    outcome: Outcome
    value: str | None = None
    seconds: dict[Stage, float] = field(default_factory=dict)
    peak_memory: int | None = None
    total_seconds: float = 0.0


class Isolator:
    """Runs functions in processes of their own. One per controller; safe to use from many threads."""

    def __init__(self, clean: Callable[[str], str] = str) -> None:
        """``clean`` takes secrets out of logs and outcomes."""
        self._server = Server()
        self._clean = clean
        self._aborted = threading.Event()

    def run(
        self,
        entry: str,
        request: str,
        *,
        limits: Limits,
        log: Path,
        threads: int = 1,
        drills: tuple[Drill, ...] = (),
        on_stage: Callable[[Stage], None] | None = None,
    ) -> Ended:
        """Run ``entry`` ("module:function") with a JSON request. Never raises for what the process does."""
        if self._aborted.is_set():
            return Ended(Outcome(kind=OutcomeKind.CANCELLED, message="the run was interrupted before it began"))
        log.parent.mkdir(parents=True, exist_ok=True)
        ours, theirs = self._server.pipe()
        lines = "\n".join(drill.model_dump_json() for drill in drills)
        started = time.monotonic()
        process = self._server.start_process(child.main, (theirs, entry, request, str(log), threads, lines))
        theirs.close()
        watch = _Watch(process, ours, limits, log, on_stage, self._aborted)
        try:
            ended = watch.until_end()
        finally:
            ours.close()
            watch.end_family()
            self._server.end_orphans()
            shorten(log)
            clean(log, self._clean)
        ended.total_seconds = time.monotonic() - started
        if ended.value is None:
            ended.outcome = self._without_secrets(ended.outcome)
            self._server.distrust()
        return ended

    def abort(self) -> None:
        """End every running process, as cancelled, and start no further one."""
        self._aborted.set()

    def close(self) -> None:
        """End the fork server."""
        self._server.stop()

    def _without_secrets(self, outcome: Outcome) -> Outcome:
        texts = {"message": self._clean(outcome.message), "detail": self._clean(outcome.detail)}
        return outcome.model_copy(update=texts)


class _Watch:
    """One process under supervision."""

    def __init__(
        self,
        process: BaseProcess,
        connection: Connection,
        limits: Limits,
        log: Path,
        on_stage: Callable[[Stage], None] | None,
        aborted: threading.Event,
    ) -> None:
        self._process = process
        self._aborted = aborted
        self._connection = connection
        self._limits = limits
        self._log = log
        self._on_stage = on_stage
        self._stage: Stage | None = None
        self._stage_began = time.monotonic()
        self._seconds: dict[Stage, float] = {}
        self._peak = 0
        self._activity = _Activity(log)
        self._family: dict[int, psutil.Process] = {}
        self._oom_kills = _oom_kills()

    def until_end(self) -> Ended:
        """Wait for an answer, a death, a timeout or too much memory, whichever comes first."""
        while True:
            ready = wait([self._connection, self._process.sentinel], timeout=SAMPLE_SECONDS)
            if self._connection in ready:
                ended = self._receive()
                if ended is not None:
                    return ended
                continue
            if ready:
                return self._died()
            if self._aborted.is_set():
                return self._ended(Outcome(kind=OutcomeKind.CANCELLED, stage=self._stage, message=INTERRUPTED))
            failed = self._look()
            if failed is not None:
                return self._ended(failed)

    def end_family(self) -> None:
        """Kill everything that the process started, itself included, in bounded time."""
        pid = self._process.pid
        if pid is None:
            return
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline:
            others = self._others(pid)
            family.end(others)
            # The last one: as long as it lives it ends the others by itself, should this process be killed here.
            self._process.kill()
            self._process.join(0.05)
            if not others and self._process.exitcode is not None:
                break

    def _others(self, pid: int) -> list[psutil.Process]:
        """What the process started and what still runs of it, also when it is gone itself."""
        found = {known.pid: known for known in family.descendants(pid)}
        found |= {known.pid: known for known in self._family.values() if known.is_running()}
        for member in family.session_members(pid) - {pid, *found}:
            with contextlib.suppress(psutil.Error):
                found[member] = psutil.Process(member)
        return list(found.values())

    def _receive(self) -> Ended | None:
        try:
            kind, payload, when, peak = json.loads(self._connection.recv_bytes(ANSWER_BYTES))
            self._peak = max(self._peak, int(peak))
            return self._understand(str(kind), str(payload), float(when))
        except (EOFError, OSError):
            self._process.join(GRACE_SECONDS)
            return self._died()
        except (ValueError, TypeError) as error:
            message = f"answered with something that is no answer ({error}) in stage {self._stage or 'start'}"
            return self._ended(self._outcome(OutcomeKind.CRASH, message))

    def _understand(self, kind: str, payload: str, when: float) -> Ended | None:
        self._close_stage(when)
        if kind == "stage":
            self._stage, self._stage_began = Stage(payload), when
            self._activity.seen()
            if self._on_stage:
                self._on_stage(self._stage)
            return None
        self._sample()
        if kind == "value":
            return self._ended(Outcome(kind=OutcomeKind.COMPLETED, stage=self._stage), payload)
        return self._ended(Outcome.model_validate_json(payload))

    def _close_stage(self, when: float) -> None:
        if self._stage is not None:
            spent = max(0.0, when - self._stage_began)
            self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + spent

    def _look(self) -> Outcome | None:
        resident = self._sample()
        if self._limits.memory is not None and resident > self._limits.memory:
            message = f"used {resident / 2**30:.1f} GiB of host memory, limit {self._limits.memory / 2**30:.1f} GiB"
            return self._outcome(OutcomeKind.HOST_OUT_OF_MEMORY, message)
        if self._activity.log_bytes > GROWN:
            shorten(self._log)
        allowed = self._limits.of(self._stage)
        silent = self._activity.silent_seconds()
        if time.monotonic() - self._stage_began > allowed:
            message = f"no end within {allowed:g} s in stage {self._stage or 'start'}"
        elif silent > self._limits.stall:
            message = f"stalled: no output and no work for {silent:.0f} s in stage {self._stage or 'start'}"
        else:
            return None
        self._ask_for_stacks()
        return self._outcome(OutcomeKind.TIMEOUT, message)

    def _sample(self) -> int:
        """Resident bytes of the process and its descendants; remembers them, their peak and their work."""
        total, work = 0, 0.0
        try:
            main = psutil.Process(self._process.pid)
        except psutil.Error:
            return 0
        for member in [main, *family.descendants(main.pid)]:
            with contextlib.suppress(psutil.Error), member.oneshot():
                total += member.memory_info().rss
                times = member.cpu_times()
                work += times.user + times.system
                if member.pid != self._process.pid:
                    self._family[member.pid] = member
        self._peak = max(self._peak, total)
        self._activity.look(work)
        return total

    def _ask_for_stacks(self) -> None:
        if self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, child.STACK_SIGNAL)
                time.sleep(0.3)

    def _died(self) -> Ended:
        """The process is gone without an answer."""
        self._close_stage(time.monotonic())
        code = self._process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            if name == "SIGKILL":
                return self._ended(self._killed())
            if name in child.ASKED_TO_END:
                return self._ended(self._outcome(OutcomeKind.KILLED, f"killed by {name} from outside", name, code))
            message = f"ended by {name} in stage {self._stage or 'start'}"
            return self._ended(self._outcome(OutcomeKind.CRASH, message, name, code))
        message = f"exited with status {code} in stage {self._stage or 'start'} before it gave a result"
        return self._ended(self._outcome(OutcomeKind.CRASH, message, None, code))

    def _killed(self) -> Outcome:
        if _oom_kills() > self._oom_kills:
            message = "killed by the kernel for want of host memory"
            return self._outcome(OutcomeKind.HOST_OUT_OF_MEMORY, message, "SIGKILL", -9)
        return self._outcome(OutcomeKind.KILLED, "killed by SIGKILL from outside", "SIGKILL", -9)

    def _outcome(self, kind: OutcomeKind, message: str, name: str | None = None, code: int | None = None) -> Outcome:
        detail = tail(self._log, LOG_TAIL)
        return Outcome(kind=kind, stage=self._stage, message=message, detail=detail, signal=name, exit_code=code)

    def _ended(self, outcome: Outcome, value: str | None = None) -> Ended:
        return Ended(outcome, value, dict(self._seconds), self._peak or None)


class _Activity:
    """When a process was last seen to do something: to mark a stage, to write, to compute."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.log_bytes = 0
        self._work = 0.0
        self._last = self._looked = time.monotonic()

    def seen(self) -> None:
        """It has just done something."""
        self._last = time.monotonic()

    def look(self, work: float) -> None:
        """Take note of the seconds of processor time that the family has used in all."""
        now, written = time.monotonic(), size(self._log)
        if written != self.log_bytes or abs(work - self._work) > IDLE_CPU * (now - self._looked):
            self._last = now
        self.log_bytes, self._work, self._looked = written, work, now

    def silent_seconds(self) -> float:
        return time.monotonic() - self._last


def _oom_kills() -> int:
    """How many processes of this control group the kernel has killed for memory; 0 where it is not told."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/sys/fs/cgroup/memory.events").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
