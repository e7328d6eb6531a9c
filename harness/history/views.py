"""A run as history sees it: one small sample per case, no tensors, no texts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from harness.records import (
    CaseResult,
    Comparison,
    Environment,
    ExpectationMode,
    OutcomeKind,
    Role,
    Run,
    Stage,
    Status,
    Tolerance,
)

GOOD = frozenset({Status.PASS, Status.XFAIL})
"""As it should be, or as it is known to be."""
TELLING = frozenset({Status.PASS, Status.FAIL, Status.XFAIL, Status.XPASS})
"""Statuses that say something about the device; the others leave what was known untouched."""


class Sample(NamedTuple):
    """One case of one run. A tuple, since a night's report makes hundreds of thousands of them."""

    case: str
    status: Status
    kind: OutcomeKind
    stage: Stage | None = None
    error: float | None = None
    """Largest relative L2 error of the candidate over the outputs: raw, whatever the limits say."""
    seconds: float | None = None
    """Time of the candidate's forward passes."""
    limits: tuple[tuple[str, float], ...] = ()
    """Tolerance in force."""
    inputs: str = ""
    """Digest of what the model was asked; raw errors compare only where it is equal."""
    checkpoint: str = ""
    """Digest of the weights."""
    retried: tuple[OutcomeKind, ...] = ()
    """Outcomes of the attempts when they differ: the case is flaky within the run."""
    flags: tuple[str, ...] = ()
    """The verdict's flags, ``drilled`` among them."""
    sentence: str = ""
    expected: str = ""
    """The expectation's outcome; empty without one."""
    expectation_at: str = ""


class Trait(NamedTuple):
    """What a case has in common with others of its run."""

    family: str
    """The model's family, or its name."""
    wrong: str = ""
    """Where it first goes wrong: the op, or a module of the family. Empty where nothing was found."""


@dataclass(frozen=True)
class RunView:
    """One run: its samples by case id, what was planned, and where it ran."""

    run_id: str
    started: datetime
    environment: Environment
    samples: Mapping[str, Sample]
    planned: frozenset[str] = frozenset()
    """Ids of the plan; cases without a sample are missing."""
    finished: bool = True
    profile: str | None = None
    selection: str = ""
    lane: str = ""
    """Host architecture and kind of device, and ``validate`` where expectations were set aside."""
    expectations: ExpectationMode = ExpectationMode.GATING
    traits: Mapping[str, Trait] = field(default_factory=dict, compare=False)
    """By case id, of a run just read; an index does not keep them."""
    damage: tuple[str, ...] = field(default=(), compare=False)
    """What the reader of the run directory could not use, of a run just read."""

    @property
    def first_damage(self) -> str:
        """The first of the damaged places, and how many more there are."""
        more = len(self.damage) - 1
        return f"{self.damage[0]}; and {more} more" if more > 0 else "".join(self.damage)

    @property
    def missing(self) -> list[str]:
        """Planned cases without a result, in order."""
        return sorted(self.planned - self.samples.keys())

    @property
    def partial(self) -> bool:
        """Whether the run was asked for a part of its profile only, so that absence means nothing."""
        return bool(self.selection)


def view(run: Run, results: Iterable[CaseResult], damage: tuple[str, ...] = ()) -> RunView:
    """Return a stored run as history sees it; ``damage``: what the store found damaged in it."""
    kept = list(results)
    samples = {result.case.id: sample(result) for result in kept}
    return RunView(
        run_id=run.run_id,
        started=run.started,
        environment=run.environment,
        samples=samples,
        planned=frozenset(case.id for case in run.plan) | frozenset(samples),
        finished=run.finished is not None,
        profile=run.profile,
        selection=run.selection,
        lane=lane(run.environment, run.expectations),
        expectations=run.expectations,
        traits={result.case.id: trait(result) for result in kept},
        damage=damage,
    )


def lane(environment: Environment, mode: ExpectationMode) -> str:
    """Return the host architecture and kind of device: runs of one lane form one history.

    Where expectations were set aside a known failure is FAIL, so such runs form a history of their own.
    """
    words = [environment.machine, environment.device.get("kind", "none")]
    return " ".join(words if mode is ExpectationMode.GATING else [*words, mode])


def gating(run: RunView) -> RunView:
    """Return a run with each sample in the light of its expectation, expiry aside, as a gating run has it."""
    samples = {name: _gating(one) for name, one in run.samples.items()}
    return replace(run, samples=samples, expectations=ExpectationMode.GATING)


def _gating(sample: Sample) -> Sample:
    if not sample.expected or sample.status not in (Status.PASS, Status.FAIL):
        return sample
    if sample.status is Status.PASS:
        return sample._replace(status=Status.XPASS)
    held = sample.expected == ("outside_rule" if sample.kind is OutcomeKind.COMPLETED else sample.kind)
    return sample._replace(status=Status.XFAIL) if held else sample


def sample(result: CaseResult) -> Sample:
    """Return what history keeps of one result."""
    case, verdict = result.case, result.verdict
    tolerance = verdict.tolerance or case.tolerance
    kinds = tuple(attempt.outcome.kind for attempt in result.attempts)
    candidate = result.observations.get(Role.CANDIDATE)
    asked = f"{case.inputs.model_dump_json()} {case.shape}"
    expectation = case.expectation
    return Sample(
        case=case.id,
        status=verdict.status,
        kind=result.outcome.kind,
        stage=result.outcome.stage,
        error=raw_error(result.comparison) if result.comparison else None,
        seconds=(candidate.seconds if candidate else result.seconds).get(Stage.RUN),
        limits=limits(tolerance),
        inputs=hashlib.sha256(asked.encode()).hexdigest()[:16],
        checkpoint=result.checkpoint.digest if result.checkpoint else "",
        retried=kinds if len(set(kinds)) > 1 else (),
        flags=verdict.flags,
        sentence=verdict.sentence,
        expected=str(expectation.outcome) if expectation else "",
        expectation_at=(case.expectation_at or "") if expectation else "",
    )


def trait(result: CaseResult) -> Trait:
    """Return what one result has in common with others."""
    family, found = result.case.family or result.case.model, result.localization
    if found is None or (found.op is None and found.module is None):
        return Trait(family)
    if found.op is not None:
        return Trait(family, found.op.op)
    assert found.module is not None
    return Trait(family, f"{re.sub('[0-9]+', '*', found.module.name)} of {family}")  # the layers of a model are alike


def limits(tolerance: Tolerance) -> tuple[tuple[str, float], ...]:
    """Return the limits that are set, by name."""
    return tuple((name, float(getattr(tolerance, name))) for name in tolerance.limits)


def raw_error(comparison: Comparison) -> float | None:
    """Return the largest relative L2 error of the candidate over all outputs; None without any."""
    errors = [o.candidate.relative_l2 for o in comparison.outputs if o.candidate is not None]
    return max((error for error in errors if error is not None), default=None)
