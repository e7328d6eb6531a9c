"""A device that died is asked once, and blamed once."""

from __future__ import annotations

from harness.isolate import DeviceHealth
from harness.records import Outcome, OutcomeKind

ERROR = Outcome(kind=OutcomeKind.DEVICE_ERROR, message="uncorrectable")
ALIVE = Outcome(kind=OutcomeKind.COMPLETED)


def health(*answers: Outcome) -> tuple[DeviceHealth, list[str]]:
    asked: list[str] = []
    left = list(answers)

    def probe(target: str) -> Outcome:
        asked.append(target)
        return left.pop(0)

    return DeviceHealth(probe), asked


def test_only_ends_that_may_poison_a_device_are_followed_by_a_probe() -> None:
    every, asked = health(*[ALIVE] * 2)
    for kind in OutcomeKind:
        every.after("spyre", f"case-{kind}", Outcome(kind=kind))
    assert asked == ["spyre", "spyre"], "device_error and timeout"
    every.after("cpu", "case", ERROR)
    assert len(asked) == 2, "a CPU has no state of its own"


def test_a_living_device_blocks_nobody() -> None:
    living, _ = health(ALIVE)
    living.after("spyre", "a", ERROR)
    assert living.blocked("spyre") is None


def test_a_dead_device_blocks_all_but_the_root_cause() -> None:
    dead, asked = health(Outcome(kind=OutcomeKind.TIMEOUT, message="no end within 120 s"))
    dead.after("spyre", "a", ERROR)
    dead.after("spyre", "b", ERROR)
    assert asked == ["spyre"], "asked once"
    assert dead.blocked("spyre", "a") is None
    blocked = dead.blocked("spyre", "b")
    assert blocked is not None
    assert (blocked.kind, blocked.stage) == (OutcomeKind.UNAVAILABLE, "place")
    assert blocked.message == (
        "blocked: the device spyre does not answer since a ended with device_error (no end within 120 s). "
        "Reset the device and go on with --resume."
    )
    assert dead.blocked("cuda") is None


def test_an_interrupted_probe_says_nothing() -> None:
    unknown, _ = health(Outcome(kind=OutcomeKind.CANCELLED))
    unknown.after("spyre", "a", ERROR)
    assert unknown.blocked("spyre") is None
