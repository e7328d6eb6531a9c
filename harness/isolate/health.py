"""Whether a device is still alive: one device error that poisons later work is one root cause."""

from __future__ import annotations

import threading
from collections.abc import Callable

from harness.records import Outcome, OutcomeKind, Stage

RETRIED = frozenset({OutcomeKind.CRASH, OutcomeKind.KILLED, OutcomeKind.TIMEOUT, OutcomeKind.DEVICE_ERROR})
"""Ends that chance can explain. They are tried again, a bounded number of times; every attempt is kept."""

SUSPICIOUS = frozenset({OutcomeKind.DEVICE_ERROR, OutcomeKind.TIMEOUT})
"""Ends after which a device may be dead for everybody (torch-spyre#2666, torch-spyre#4712)."""


class DeviceHealth:
    """Asks a device, in a fresh process, after an end that may have left it dead. Safe to use from many threads."""

    def __init__(self, probe: Callable[[str], Outcome]) -> None:
        """``probe`` puts a small question to a target, in a process of its own."""
        self._probe = probe
        self._lock = threading.Lock()
        self._dead: dict[str, Outcome] = {}
        self._culprits: dict[str, str] = {}

    def blocked(self, target: str, case: str | None = None) -> Outcome | None:
        """Why nothing can run on the target; None when it can, and for the case that is the root cause."""
        if case is not None and self._culprits.get(target) == case:
            return None
        return self._dead.get(target)

    def after(self, target: str, case: str, outcome: Outcome) -> None:
        """Take note of how a process on the target ended; probe where that is called for."""
        if outcome.kind not in SUSPICIOUS or target == "cpu":
            return
        with self._lock:
            if target in self._dead:
                return
            answer = self._probe(target)
            if answer.kind is OutcomeKind.COMPLETED or answer.kind is OutcomeKind.CANCELLED:
                return
            self._culprits[target] = case
            self._dead[target] = Outcome(
                kind=OutcomeKind.UNAVAILABLE,
                stage=Stage.PLACE,
                message=(
                    f"blocked: the device {target} does not answer since {case} ended with {outcome.kind} "
                    f"({answer.message}). Reset the device and go on with --resume."
                ),
                detail=answer.detail,
            )
