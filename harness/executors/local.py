"""A pool of threads on this machine, each waiting for one isolated process at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")


class LocalPool(Generic[Key, Result]):
    """Runs a function over keys with a number of workers; results are waited for by key."""

    def __init__(self, work: Callable[[Key], Result], workers: int) -> None:
        self._work = work
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="case")
        self._futures: dict[Key, Future[Result]] = {}
        self._stopping = threading.Event()

    def submit(self, keys: Iterable[Key]) -> None:
        """Queue work in the given order."""
        for key in keys:
            self._futures[key] = self._threads.submit(self._guarded, key)

    def result(self, key: Key) -> Result:
        """Wait for one result. Raises what the work raised, CancelledError when it was cancelled."""
        return self._futures[key].result()

    def cancel(self) -> None:
        """Take back what has not begun."""
        self._stopping.set()
        for future in self._futures.values():
            future.cancel()

    def close(self) -> None:
        """Wait for what is running, and end the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _guarded(self, key: Key) -> Result:
        if self._stopping.is_set():
            raise CancelledError
        return self._work(key)
