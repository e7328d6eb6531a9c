"""Who begins when: longest first, within memory, one at a time while a group is being prepared."""

from __future__ import annotations

import threading

from harness.executors import Job, Schedule


def order(*jobs: Job[str], workers: int = 1, memory: int = 100) -> list[str]:
    schedule: Schedule[str] = Schedule(workers, memory)
    schedule.add(jobs)
    taken = []
    for _ in jobs:
        job = schedule.take()
        assert job is not None
        taken.append(job.key)
        schedule.done(job)
    return taken


def test_longest_first() -> None:
    assert order(Job("short", 1), Job("long", 9), Job("middle", 5)) == ["long", "middle", "short"]
    assert order(Job("a"), Job("b"), Job("c")) == ["a", "b", "c"], "equals keep their order"


def test_a_small_job_goes_before_one_that_does_not_fit_yet() -> None:
    schedule: Schedule[str] = Schedule(2, 100)
    schedule.add([Job("first", 9, 70), Job("large", 8, 60), Job("small", 1, 30)])
    first, small = schedule.take(), schedule.take()
    assert [first and first.key, small and small.key] == ["first", "small"]
    waited = threading.Event()
    later: list[str] = []

    def wait() -> None:
        waited.set()
        job = schedule.take()
        later.append(job.key if job else "none")

    thread = threading.Thread(target=wait)
    thread.start()
    waited.wait(5)
    assert small is not None
    schedule.done(small)
    thread.join(0.2)
    assert later == [], "30 of 100 are free, 60 are needed"
    assert first is not None
    schedule.done(first)
    thread.join(5)
    assert later == ["large"]


def test_what_is_larger_than_the_machine_begins_alone() -> None:
    schedule: Schedule[str] = Schedule(2, 100)
    schedule.add([Job("huge", 9, 1000), Job("small", 1, 1)])
    job = schedule.take()
    assert job is not None
    assert job.key == "huge"
    assert schedule._next() is None, "nothing beside it"
    schedule.done(job)
    assert schedule._next() == 0


def test_unknown_sizes_take_an_even_share() -> None:
    schedule: Schedule[str] = Schedule(2, 100)
    schedule.add([Job("a"), Job("b"), Job("c")])
    assert [schedule.take() is not None, schedule.take() is not None] == [True, True]
    assert schedule._next() is None


def test_a_group_is_prepared_by_one_job() -> None:
    schedule: Schedule[str] = Schedule(3, 300)
    schedule.add([Job("a1", 9, 1, "a"), Job("a2", 8, 1, "a"), Job("b1", 1, 1, "b"), Job("free", 0.5, 1)])
    jobs = [schedule.take() for _ in range(3)]
    assert [job and job.key for job in jobs] == ["a1", "b1", "free"]
    assert schedule._next() is None
    assert jobs[0] is not None
    schedule.done(jobs[0])
    assert schedule._next() == 0


def test_closing_returns_what_did_not_begin() -> None:
    schedule: Schedule[str] = Schedule(1, 100)
    schedule.add([Job("a", 2), Job("b", 1)])
    schedule.take()
    assert [job.key for job in schedule.close()] == ["b"]
    assert schedule.take() is None
