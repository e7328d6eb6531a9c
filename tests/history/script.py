"""Scripted histories: nights of runs with changes planted in them, and what a change report has to find."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from harness.history import RunView, Sample
from harness.records import ChangeKind, Environment, OutcomeKind, Package, Stage, Status

FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)
LIMITS = (("cosine", 0.99), ("error_ratio", 4.0))


def environment(torch: str = "2.13.0", **rest: object) -> Environment:
    values: dict[str, object] = {
        "python": "3.11.7",
        "platform": "Linux",
        "machine": "x86_64",
        "cpu": "some cpu",
        "cores": 2,
        "memory": 8 << 30,
        "packages": (Package(name="torch", version=torch), Package(name="transformers", version="5.24.0")),
        "device": {"kind": "emulator", "version": "1"},
    }
    return Environment(**(values | rest))


def sample(case: str = "m/causal-lm/spyre-eager-float16", status: Status = Status.PASS, **rest: object) -> Sample:
    kind = OutcomeKind.COMPLETED
    if status in (Status.ERROR, Status.NOTRUN):
        kind = OutcomeKind.HARNESS_FAULT if status is Status.ERROR else OutcomeKind.UNAVAILABLE
    values: dict[str, object] = {
        "kind": kind,
        "stage": Stage.COMPARE,
        "error": 0.01,
        "seconds": 10.0,
        "limits": LIMITS,
        "inputs": "i",
        "checkpoint": "c",
    }
    return Sample(case=case, status=status, **(values | rest))


def night(number: int, *samples: Sample, env: Environment | None = None, **rest: object) -> RunView:
    """A run of night ``number`` with these samples; the plan is what the samples name unless given."""
    values: dict[str, object] = {
        "planned": frozenset(one.case for one in samples),
        "profile": "nightly",
        "lane": "x86_64 emulator",
    }
    return RunView(
        run_id=f"night-{number:03}",
        started=FIRST + timedelta(days=number),
        environment=env or environment(),
        samples={one.case: one for one in samples},
        **(values | rest),
    )


@dataclass
class Plant:
    """A change planted in one case."""

    case: str
    label: ChangeKind
    night: int
    metric: str | None = None


@dataclass
class Script:
    """A history and what has to be found in it, as (case, label, first night, metric)."""

    runs: list[RunView]
    expected: set[tuple[str, ChangeKind, str, str | None]]
    upgrades: list[int] = field(default_factory=list)


CASES = [f"model-{i:02}/causal-lm/spyre-eager-float16" for i in range(40)]


def script(seed: int, nights: int = 60) -> Script:
    """Return a history of 40 cases with one change of each kind planted in cases of their own."""
    return _Author(Random(seed), nights).write()


class _Author:
    def __init__(self, random: Random, nights: int) -> None:
        self.random, self.nights = random, nights
        order = random.sample(CASES, len(CASES))
        self.free = iter(order)
        self.plants: list[Plant] = []
        self.rows: dict[str, list[Sample | None]] = {case: self._quiet(case) for case in CASES}
        self.upgrades = sorted(random.sample(range(5, nights - 8), 6))
        self.lost = set(random.sample(range(3, nights), 4))
        self.cut = {night for night in random.sample(range(15, nights), 2) if night not in self.lost}

    def _quiet(self, case: str) -> list[Sample | None]:
        """An undisturbed case: errors scatter by up to 3 %, times evenly within 10 %."""
        error, seconds = 10 ** self.random.uniform(-4, -1), self.random.uniform(1, 100)
        scatter = self.random.choice([0.0, 0.0, 0.01, 0.03])
        return [
            sample(
                case,
                error=error * (1 + scatter * self.random.gauss(0, 1)),
                seconds=seconds * (1 + 0.1 * self.random.uniform(-1, 1)),
            )
            for _ in range(self.nights)
        ]

    def _plant(self, case: str, label: ChangeKind, night: int, metric: str | None = None) -> None:
        self.plants.append(Plant(case, label, night, metric))

    def _edit(self, case: str, nights: range, **values: object) -> None:
        for at in nights:
            one = self.rows[case][at]
            if one is not None:
                self.rows[case][at] = one._replace(**values)

    def _scale(self, case: str, nights: range, what: str, factor: float) -> None:
        for at in nights:
            one = self.rows[case][at]
            self.rows[case][at] = one._replace(**{what: getattr(one, what) * factor})

    def _night(self, low: int = 12, room: int = 8) -> int:
        return self.random.randrange(low, self.nights - room)

    def write(self) -> Script:
        for plant in (self._failures, self._flakes, self._steps, self._coverage, self._policy, self._infra):
            plant()
        runs = [self._run(at) for at in range(self.nights) if at not in self.lost]
        expected = {(one.case, one.label, self._shown(one, runs), one.metric) for one in self.plants} | {
            (case, ChangeKind.INCOMPLETE, run.run_id, None) for run in runs for case in run.missing
        }
        return Script(runs, expected, self.upgrades)

    def _shown(self, plant: Plant, runs: list[RunView]) -> str:
        """The first run at or after the night that has the case, or, for one that is gone, could have it."""
        first = f"night-{plant.night:03}"
        gone = self.rows[plant.case][plant.night] is None
        return next(run.run_id for run in runs if run.run_id >= first and (gone or plant.case in run.samples))

    def _run(self, at: int) -> RunView:
        upgrades = sum(night <= at for night in self.upgrades)
        present = [row[at] for row in self.rows.values() if row[at] is not None]
        kept = present[: len(present) // 2] if at in self.cut else present
        return night(
            at,
            *kept,
            env=environment(torch=f"2.13.{upgrades}"),
            planned=frozenset(one.case for one in present),
            finished=at not in self.cut,
        )

    def _failures(self) -> None:
        for back in (False, True, True):
            case, at = next(self.free), self.random.choice(self.upgrades)
            self._edit(case, range(at, self.nights), status=Status.FAIL)
            self._plant(case, ChangeKind.REGRESSED, at)
            later = at + self.random.randrange(5, 8)
            if back and later < self.nights:
                self._edit(case, range(later, self.nights), status=Status.PASS)
                self._plant(case, ChangeKind.FIXED, later)
        case, at = next(self.free), self._night()
        self._edit(case, range(self.nights), status=Status.FAIL, kind=OutcomeKind.COMPLETED)
        self._edit(case, range(at, self.nights), kind=OutcomeKind.CRASH, stage=Stage.RUN)
        self._plant(case, ChangeKind.REGRESSED, at)
        case, at = next(self.free), self._night()
        self._edit(case, range(self.nights), status=Status.XFAIL, expected="outside_rule")
        self._scale(case, range(at, self.nights), "error", self.random.uniform(3, 30))
        self._plant(case, ChangeKind.REGRESSED, at, "relative_l2")

    def _flakes(self) -> None:
        case, at = next(self.free), self._present()
        self._edit(case, range(at, at + 1), retried=(OutcomeKind.CRASH, OutcomeKind.COMPLETED))
        self._plant(case, ChangeKind.FLAKY, at)
        # One night's failure with nothing recorded behind it: suspected, then known for what it is.
        case, at = next(self.free), self._still()
        self._edit(case, range(at, at + 1), status=Status.FAIL)
        self._plant(case, ChangeKind.REGRESSED, at)
        self._plant(case, ChangeKind.FLAKY, at + 1)

    def _present(self) -> int:
        return self.random.choice([n for n in range(12, self.nights - 8) if n not in self.lost | self.cut])

    def _still(self) -> int:
        """A night with its neighbours present and no upgrade among them."""
        bad = self.lost | self.cut | set(self.upgrades)
        return self.random.choice([n for n in range(12, self.nights - 8) if not bad & {n - 1, n, n + 1}])

    def _steps(self) -> None:
        for what, metric, factors in (
            ("error", "relative_l2", (1.3, 2.5)),
            ("error", "relative_l2", (0.4, 0.7)),
            ("seconds", "run_seconds", (1.4, 1.4)),
            ("seconds", "run_seconds", (0.5, 0.6)),
        ):
            case, at = next(self.free), self._night(low=15)
            self._scale(case, range(at, self.nights), what, self.random.uniform(*factors))
            self._plant(case, ChangeKind.DRIFTED, at, metric)

    def _coverage(self) -> None:
        case, at = next(self.free), self._night()
        self.rows[case][at:] = [None] * (self.nights - at)
        self._plant(case, ChangeKind.GONE, at)
        case, at = next(self.free), self._night()
        self.rows[case][:at] = [None] * at
        self._plant(case, ChangeKind.NEW, at)
        case, at = next(self.free), self._night()
        self._edit(case, range(at, self.nights), status=Status.SKIP, kind=OutcomeKind.EXCLUDED)
        self._plant(case, ChangeKind.GONE, at)

    def _policy(self) -> None:
        case, at = next(self.free), self._night()
        self._edit(case, range(at, self.nights), limits=(("cosine", 0.99), ("error_ratio", 40.0)))
        self._plant(case, ChangeKind.RELAXED, at)
        case, at = next(self.free), self._night()
        self._edit(case, range(at, self.nights), inputs="shorter")
        self._plant(case, ChangeKind.RELAXED, at)
        case, at = next(self.free), self._night()
        self._edit(case, range(at), status=Status.FAIL)
        self._edit(case, range(at, self.nights), limits=(("cosine", 0.9), ("error_ratio", 4.0)))
        self._plant(case, ChangeKind.RELAXED, at)
        case, at = next(self.free), self._night()
        self._edit(case, range(self.nights), status=Status.XFAIL, expected="crash", expectation_at="models.yaml:9")
        self._edit(case, range(at, self.nights), status=Status.XPASS)
        self._plant(case, ChangeKind.STALE_EXPECTATION, at)

    def _infra(self) -> None:
        for status, kind in ((Status.NOTRUN, OutcomeKind.UNAVAILABLE), (Status.ERROR, OutcomeKind.HARNESS_FAULT)):
            case, at = next(self.free), self._present()
            self._edit(case, range(at, at + 2), status=status, kind=kind, error=None, seconds=None)
            self._plant(case, ChangeKind.INFRA, at)
