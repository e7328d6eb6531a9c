"""A pool of threads on this machine, each waiting for one isolated process at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from harness.executors.schedule import Job, Schedule

Key = TypeVar("Key")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Ended(Generic[Result]):
    """How a job ended. A future of its own for each of many thousand jobs would take most of a run's memory."""

    result: Result | None = None
    error: BaseException | None = None


class LocalPool(Generic[Key, Result]):
    """Runs a function over jobs with a number of workers; results are waited for by key."""

    def __init__(self, work: Callable[[Key], Result], workers: int, memory: int) -> None:
        """``memory``: bytes that the jobs running at a time may be expected to use."""
        self._work = work
        self._schedule: Schedule[Key] = Schedule(workers, memory)
        self._ended: dict[Key, _Ended[Result]] = {}
        self._queued: set[Key] = set()
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._serve, name=f"case-{i}", daemon=True) for i in range(workers)]
        self._busy = 0.0
        self._lock = threading.Lock()

    def submit(self, jobs: Iterable[Job[Key]]) -> None:
        """Queue jobs and begin."""
        queued = list(jobs)
        with self._changed:
            self._queued.update(job.key for job in queued)
        self._schedule.add(queued)
        for thread in self._threads:
            if not thread.is_alive():
                thread.start()

    def result(self, key: Key) -> Result:
        """Wait for one result. Raises what the work raised, CancelledError when it was cancelled."""
        with self._changed:
            if key not in self._queued:
                raise KeyError(key)
            self._changed.wait_for(lambda: key in self._ended)
            ended = self._ended[key]
        if ended.error is not None:
            raise ended.error
        return cast("Result", ended.result)

    def failure(self, key: Key) -> BaseException | None:
        """What the work raised, when it has ended by raising."""
        with self._changed:
            ended = self._ended.get(key)
        return None if ended is None or isinstance(ended.error, CancelledError) else ended.error

    def cancel(self) -> None:
        """Take back what has not begun."""
        for job in self._schedule.close():
            self._end(job.key, _Ended(error=CancelledError()))

    def close(self, patience: float | None = None) -> None:
        """Wait for what is running, at most ``patience`` seconds, and end the threads."""
        self.cancel()
        deadline = None if patience is None else time.monotonic() + patience
        for thread in self._threads:
            if thread.is_alive():
                thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))

    @property
    def busy_seconds(self) -> float:
        """Seconds of work, over all workers."""
        return self._busy

    def _end(self, key: Key, ended: _Ended[Result]) -> None:
        with self._changed:
            self._ended[key] = ended
            self._changed.notify_all()

    def _serve(self) -> None:
        while (job := self._schedule.take()) is not None:
            began = time.monotonic()
            try:
                ended: _Ended[Result] = _Ended(result=self._work(job.key))
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the result
                ended = _Ended(error=error)
            with self._lock:
                self._busy += time.monotonic() - began
            self._schedule.done(job)
            self._end(job.key, ended)
