"""Where the time of a run goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

from harness.records import CaseResult, OutcomeKind, Role, Stage

REFERENCE, LOCALIZATION, RETRIES, WAITING, WALL = "reference", "localization", "retries", "waiting", "wall"
LEARNT_NOTHING = frozenset({OutcomeKind.CANCELLED, OutcomeKind.UNAVAILABLE, OutcomeKind.HARNESS_FAULT})


class Ledger:
    """Adds up seconds while results come in. Not safe by itself: its owner holds a lock."""

    def __init__(self) -> None:
        self.durations: dict[str, float] = {}
        """Seconds of each case's own processes, for the order of later runs."""
        self._began = time.monotonic()
        self._spent: defaultdict[str, float] = defaultdict(float)

    def enter(self, result: CaseResult) -> None:
        """Take note of one result."""
        for stage, seconds in result.seconds.items():
            self._spent[stage.value] += seconds
        made = [result.observations.get(role) for role in (Role.REFERENCE, Role.CONTROL)]
        # One process makes what is missing of both, and each of them has its seconds.
        self._spent[REFERENCE] += max((sum(one.seconds.values()) for one in made if one and not one.cached), default=0)
        if result.localization is not None:
            self._spent[LOCALIZATION] += result.localization.seconds
        last = {attempt.what: attempt.seconds for attempt in result.attempts}
        self._spent[RETRIES] += sum(attempt.seconds for attempt in result.attempts) - sum(last.values())
        if result.attempts and result.outcome.kind not in LEARNT_NOTHING:
            self.durations[result.case.id] = sum(attempt.seconds for attempt in result.attempts)

    def seconds(self, busy: float) -> dict[str, float]:
        """Worker seconds by stage and by what goes on around stages, and ``wall``.

        ``reference``, ``localization``, ``retries`` (attempts that were repeated), ``waiting`` (the rest of BUSY:
        starts, locks).
        """
        names = (*Stage, REFERENCE, LOCALIZATION, RETRIES)
        told = {name: round(self._spent[name], 3) for name in names if self._spent[name]}
        told[WAITING] = round(max(0.0, busy - sum(self._spent.values())), 3)
        told[WALL] = round(time.monotonic() - self._began, 3)
        return told

    @staticmethod
    def lines(seconds: Mapping[str, float], workers: int) -> list[str]:
        """One line for people; none for a run that took no time."""
        wall = seconds.get(WALL, 0.0)
        parts = {name: spent for name, spent in seconds.items() if name != WALL and spent >= 0.05}
        if not wall or not parts:
            return []
        busy = min(1.0, sum(parts.values()) / (wall * workers))
        ranked = sorted(parts.items(), key=lambda part: -part[1])
        where = ", ".join(f"{name} {spent:.1f} s" for name, spent in ranked)
        return [f"time: {wall:.1f} s, {workers} workers {busy:.0%} busy: {where}"]
