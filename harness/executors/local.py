"""A pool of threads on this machine, each waiting for one isolated process at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Generic, TypeVar

from harness.executors.schedule import Job, Schedule

Key = TypeVar("Key")
Result = TypeVar("Result")


class LocalPool(Generic[Key, Result]):
    """Runs a function over jobs with a number of workers; results are waited for by key."""

    def __init__(self, work: Callable[[Key], Result], workers: int, memory: int) -> None:
        """``memory``: bytes that the jobs running at a time may be expected to use."""
        self._work = work
        self._schedule: Schedule[Key] = Schedule(workers, memory)
        self._futures: dict[Key, Future[Result]] = {}
        self._threads = [threading.Thread(target=self._serve, name=f"case-{i}", daemon=True) for i in range(workers)]
        self._busy = 0.0
        self._lock = threading.Lock()

    def submit(self, jobs: Iterable[Job[Key]]) -> None:
        """Queue jobs and begin."""
        queued = list(jobs)
        self._futures |= {job.key: Future() for job in queued}
        self._schedule.add(queued)
        for thread in self._threads:
            if not thread.is_alive():
                thread.start()

    def result(self, key: Key) -> Result:
        """Wait for one result. Raises what the work raised, CancelledError when it was cancelled."""
        return self._futures[key].result()

    def failure(self, key: Key) -> BaseException | None:
        """What the work raised, when it has ended by raising."""
        future = self._futures.get(key)
        done = future is not None and future.done() and not future.cancelled()
        return future.exception() if done and future else None

    def cancel(self) -> None:
        """Take back what has not begun."""
        for job in self._schedule.close():
            self._futures[job.key].cancel()

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

    def _serve(self) -> None:
        while (job := self._schedule.take()) is not None:
            future = self._futures[job.key]
            if not future.set_running_or_notify_cancel():
                self._schedule.done(job)
                continue
            began = time.monotonic()
            try:
                future.set_result(self._work(job.key))
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the result
                future.set_exception(error)
            finally:
                with self._lock:
                    self._busy += time.monotonic() - began
                self._schedule.done(job)
