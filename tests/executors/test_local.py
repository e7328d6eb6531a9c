"""A pool of workers: results by key, failures kept, cancelling bounded."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError

import pytest

from harness.executors import Job, LocalPool


def test_results_by_key_whatever_the_order() -> None:
    pool: LocalPool[str, str] = LocalPool(str.upper, workers=2, memory=100)
    pool.submit(Job(name, seconds) for seconds, name in enumerate("abcdef"))
    assert [pool.result(name) for name in "fabedc"] == list("FABEDC")
    pool.close()
    assert pool.busy_seconds >= 0


def test_no_more_at_a_time_than_workers() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    pool: LocalPool[int, None] = LocalPool(work, workers=3, memory=100)
    pool.submit(Job(n, memory=1) for n in range(12))
    for n in range(12):
        pool.result(n)
    pool.close()
    assert most == 3
    assert pool.busy_seconds == pytest.approx(12 * 0.02, rel=0.5)


def test_what_work_raises_reaches_who_waits_and_harms_nobody_else() -> None:
    def work(n: int) -> int:
        if n == 1:
            raise ValueError("one")
        return n

    pool: LocalPool[int, int] = LocalPool(work, workers=1, memory=100)
    pool.submit(Job(n) for n in range(3))
    with pytest.raises(ValueError, match="one"):
        pool.result(1)
    assert [pool.result(0), pool.result(2)] == [0, 2]
    assert [repr(pool.failure(n)) for n in range(4)] == ["None", "ValueError('one')", "None", "None"]
    pool.close()


def test_cancelling_takes_back_what_has_not_begun() -> None:
    begun, release = threading.Event(), threading.Event()

    def work(n: int) -> int:
        begun.set()
        release.wait(10)
        return n

    pool: LocalPool[int, int] = LocalPool(work, workers=1, memory=100)
    pool.submit([Job(0), Job(1)])
    begun.wait(5)
    pool.cancel()
    with pytest.raises(CancelledError):
        pool.result(1)
    before = time.monotonic()
    pool.close(patience=0.1)
    assert time.monotonic() - before < 5, "what hangs does not hold up the end"
    release.set()
    assert pool.result(0) == 0
    pool.close()
