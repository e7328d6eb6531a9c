"""Which case runs next: one scheduler owns cores and memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key")


@dataclass(frozen=True)
class Job(Generic[Key]):
    """A piece of work as the scheduler sees it."""

    key: Key
    seconds: float = 0.0
    """How long it is expected to take: the longest begin first, so that none is left over at the end."""
    memory: int | None = None
    """Bytes it is expected to use; None: a worker's even share."""
    group: str = ""
    """Jobs of a group share a preparation: until one of them has ended the others stay behind."""


class Schedule(Generic[Key]):
    """Jobs in the order in which they may begin. Safe to use from many threads."""

    def __init__(self, workers: int, memory: int) -> None:
        self._share = memory // workers
        self._free = memory
        self._pending: list[Job[Key]] = []
        self._running: Counter[str] = Counter()
        self._prepared: set[str] = set()
        self._changed = threading.Condition()
        self._closed = False

    def add(self, jobs: Iterable[Job[Key]]) -> None:
        """Queue jobs."""
        with self._changed:
            self._pending += jobs
            self._pending.sort(key=lambda job: -job.seconds)
            self._changed.notify_all()

    def take(self) -> Job[Key] | None:
        """Wait for the next job that may begin. None once the schedule is closed."""
        with self._changed:
            while not self._closed:
                found = self._next()
                if found is not None:
                    job = self._pending.pop(found)
                    self._free -= self._need(job)
                    self._running[job.group] += 1
                    return job
                self._changed.wait()
            return None

    def done(self, job: Job[Key]) -> None:
        """Give back what a job has used."""
        with self._changed:
            self._free += self._need(job)
            self._running[job.group] -= 1
            self._prepared.add(job.group)
            self._changed.notify_all()

    def close(self) -> list[Job[Key]]:
        """Let no further job begin; returns those that did not."""
        with self._changed:
            self._closed = True
            left, self._pending = self._pending, []
            self._changed.notify_all()
            return left

    def _next(self) -> int | None:
        idle = self._running.total() == 0
        for index, job in enumerate(self._pending):
            preparing = bool(job.group) and job.group not in self._prepared and self._running[job.group] > 0
            # What is larger than the machine begins alone: its own limit tells how it ends.
            if not preparing and (self._need(job) <= self._free or idle):
                return index
        return None

    def _need(self, job: Job[Key]) -> int:
        return self._share if job.memory is None else job.memory
