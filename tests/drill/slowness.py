"""How much slower the machine is than one with nothing else to do, told for any stretch of the drill."""

from __future__ import annotations

import threading
import time
from typing import Self

EVERY = 2.0
"""Seconds between two looks."""
WORK = 0.1
"""Seconds of processor time that a look takes: longer than a scheduler lets one run that was asleep."""


class Slowness:
    """Does a bit of arithmetic again and again, and compares the time it takes with the processor time it takes."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def between(self, began: float, ended: float) -> float:
        """Factor, at least 1, in a stretch of time given in seconds of the epoch; the mean of its looks."""
        inside = [ratio for when, ratio in self._seen if began <= when <= ended + EVERY]
        return max(1.0, sum(inside) / len(inside)) if inside else 1.0

    def _look(self) -> None:
        while not self._ended.wait(EVERY):
            began, used = time.time(), time.thread_time()
            while (spent := time.thread_time() - used) < WORK:
                pass
            self._seen.append((time.time(), (time.time() - began) / spent))
