"""How the pipeline starts isolated processes: limits, drills, attempts, and no work for a dead device."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Literal

import psutil

from harness import matrix
from harness.isolate import RETRIED, DeviceHealth, Ended, Isolator, Limits
from harness.records import Attempt, Case, Drill, Outcome, OutcomeKind, Stage
from harness.settings import Settings

Kind = Literal["reference", "candidate", "localization"]

PROBE_SECONDS = 120.0
"""How long a device may take to answer a small sum, its stack's start included."""
SPARED = 0.05
"""Share of the host's memory that is left to everything else."""


class Processes:
    """Runs the processes of cases. Safe to use from many threads."""

    def __init__(self, settings: Settings, clean: Callable[[str], str], on_stage: Callable[[Case, str], None]) -> None:
        self._settings = settings
        self._isolator = Isolator(clean)
        self._health = DeviceHealth(self._probe)
        self._on_stage = on_stage
        total = psutil.virtual_memory().total
        self.memory = int(min(settings.memory_limit or total, total) * (1 - SPARED))
        """Host bytes that all processes may use together."""

    def run(self, case: Case, entry: str, request: str, what: Kind, lost: int = 0) -> tuple[Ended, list[Attempt]]:
        """How the process ended, and every attempt at it: more than one when it died as chance can explain.

        ``lost``: attempts that came to nothing elsewhere; numbers go on from there.
        """
        made: list[Attempt] = []
        ended = Ended(Outcome(kind=OutcomeKind.CANCELLED))
        retries = 0 if what == "localization" else self._settings.retries
        for number in range(lost + 1, lost + retries + 2):
            blocked = self._health.blocked(case.target, case.id) if what == "candidate" else None
            if blocked is not None:
                return Ended(blocked), made
            ended = self._once(case, entry, request, what, number, made)
            if what == "candidate":
                self._health.after(case.target, case.id, ended.outcome)
            if ended.outcome.kind not in RETRIED:
                return ended, made
        if ended.outcome.kind is OutcomeKind.DEVICE_ERROR and what == "candidate":
            blocked = self._health.blocked(case.target, case.id)
            return (Ended(blocked), made) if blocked is not None else (ended, made)
        return ended, made

    def abort(self) -> None:
        """End what is running, as cancelled, and start nothing more."""
        self._isolator.abort()

    def close(self) -> None:
        """End the fork server."""
        self._isolator.close()

    def _once(self, case: Case, entry: str, request: str, what: Kind, number: int, made: list[Attempt]) -> Ended:
        again = "" if number == 1 else f".{number}"
        log = f"logs/{matrix.slug(case.id)}.{what}{again}.log"
        name = f"reference/{case.id}" if what == "reference" else case.id
        ended = self._isolator.run(
            entry,
            request,
            limits=self._limits(case),
            log=self._settings.run_directory / log,
            threads=self._settings.threads,
            drills=self._drills(name, number),
            on_stage=lambda stage: self._on_stage(case, stage),
        )
        made.append(Attempt(outcome=ended.outcome, seconds=ended.total_seconds, log=log, what=what))
        return ended

    def _probe(self, target: str) -> Outcome:
        """Ask a device for a small sum, in a process of its own."""
        return self._isolator.run(
            "harness.subject:probe_device",
            target,
            limits=Limits({}, default=PROBE_SECONDS, memory=self.memory, stall=self._settings.stall),
            log=self._settings.run_directory / "logs" / f"probe-{target}.log",
            drills=self._drills(f"probe/{target}", 1),
        ).outcome

    def _drills(self, name: str, number: int) -> tuple[Drill, ...]:
        """Drills of one process. Those of probes and references are named: a glob over cases means candidates."""
        kind = name.partition("/")[0]
        special = kind in ("probe", "reference")
        return tuple(
            drill
            for drill in self._settings.drills
            if fnmatchcase(name, drill.case)
            and (not special or drill.case.startswith(f"{kind}/"))
            and (drill.attempts is None or number <= drill.attempts)
        )

    def _limits(self, case: Case) -> Limits:
        """Stages by the manifest; memory: a worker's share, or more where the case is known to need it."""
        seconds = {stage: getattr(case.timeouts, stage.value) for stage in Stage}
        return Limits(seconds, memory=self.memory_for(case), stall=self._settings.stall)

    def memory_for(self, case: Case) -> int:
        """Host bytes that one process of a case may use."""
        share = self.memory // self._settings.workers
        needed = matrix.estimate(case).memory_bytes or 0
        return min(self.memory, max(share, needed + needed // 4))


def ended_differently(attempts: list[Attempt]) -> bool:
    """Whether attempts at the same process had different ends: a crash and then a pass is flaky.

    An attempt that went with its machine has no end of its own.
    """
    told = [attempt for attempt in attempts if attempt.outcome.kind is not OutcomeKind.LOST_WORKER]
    ends = {(attempt.what, attempt.outcome.kind) for attempt in told}
    return len(ends) > len({what for what, _ in ends})
