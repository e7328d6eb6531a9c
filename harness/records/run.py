"""Nouns of judgement and bookkeeping: verdict, result, environment, run."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from harness.records.base import Record, Role, Stage, Status
from harness.records.comparison import Comparison
from harness.records.expectations import ExpectationMode
from harness.records.limits import Tolerance
from harness.records.localization import Localization, ModuleEvidence
from harness.records.observation import Checkpoint, Observation, Outcome
from harness.records.plan import Case

RUN_SCHEMA = 1
"""Version of run.json and cases.jsonl. Raise it with a migration in `harness.store`."""


class Finding(Record):
    """One limit of the rule and what was measured against it."""

    metric: str
    """Name of the limit, e.g. ``error_ratio``."""
    output: str
    """Output it was measured on."""
    value: float | None
    """None: undefined."""
    limit: float
    within: bool
    where: str = ""
    """Step or index of the worst value."""


class Verdict(Record):
    """The judgement of one case."""

    status: Status
    sentence: str
    """One sentence for people: what was measured, against what, where it is worst."""
    flags: tuple[str, ...] = ()
    """``relaxed``, ``fallback``, ``near_tie``, ``drilled``, ``nan_in_reference``, ``no_control``, ``unstable``,
    ``flaky`` (attempts at the case ended differently). Where expectations are set aside: ``as_expected``,
    ``unexpected``."""
    findings: tuple[Finding, ...] = ()
    tolerance: Tolerance | None = None
    """Limits in force, all filled in."""
    tensors: int = 0
    elements: int = 0
    """Evidence: what was compared."""
    stale_expectation: str | None = None
    """For XPASS, and for a pass where expectations are set aside: the expectation to remove."""


class Attempt(Record):
    """One try of a case; more than one are kept when the first was retried."""

    outcome: Outcome
    seconds: float
    log: str | None = None
    """Path of its captured output, relative to the run directory."""
    what: str = "candidate"
    """Which process it was: ``reference`` or ``candidate``."""


class CaseResult(Record):
    """One line of cases.jsonl: everything known about one case of one run."""

    case: Case
    outcome: Outcome
    verdict: Verdict
    checkpoint: Checkpoint | None = None
    observations: dict[Role, Observation] = {}
    comparison: Comparison | None = None
    modules: ModuleEvidence | None = None
    """Error of each module by itself, for the plot of candidate against control."""
    localization: Localization | None = None
    """For failures: where the case first goes wrong."""
    started: datetime
    finished: datetime
    seconds: dict[Stage, float] = {}
    attempts: tuple[Attempt, ...] = ()
    log: str | None = None
    """Path of the captured output, relative to the run directory."""
    worker: str | None = None


class Package(Record):
    name: str
    version: str


class Environment(Record):
    """What exactly ran."""

    python: str
    platform: str
    machine: str
    """Host architecture, e.g. ``x86_64``."""
    cpu: str
    cores: int
    memory: int
    """Host bytes."""
    packages: tuple[Package, ...] = ()
    harness_version: str = ""
    commit: str | None = None
    """Commit of the working tree that ran, ``+dirty`` when it had changes."""
    device: dict[str, str] = {}
    """The device behind the target ``spyre``: kind (emulator, torch_spyre), version, settings."""
    variables: dict[str, str] = {}
    """Environment variables that act on results, from a fixed list. Never a token."""
    threads_per_case: int = 1
    workers: int = 1


class Run(Record):
    """run.json: the plan and the totals of one run."""

    schema_version: int = RUN_SCHEMA
    run_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    """``<UTC time>-<6 hex>``; sorts by time. It names files, of the index for instance, so it is never a path."""
    started: datetime
    finished: datetime | None = None
    """None while the run is going on, or when it was killed."""
    profile: str | None = None
    selection: str = ""
    """The selection options as typed."""
    expectations: ExpectationMode = ExpectationMode.GATING
    """Whether the statuses are in the light of expectations, or expectations were set aside."""
    manifest_digest: str = ""
    environment: Environment
    plan: tuple[Case, ...] = ()
    totals: dict[Status, int] = {}
    seconds: dict[str, float] = {}
    """Where the time went: seconds of workers by stage, ``reference``, ``localization``, ``retries`` and
    ``waiting``; ``wall`` of the run."""
    exit_status: Annotated[int, Field(ge=0, le=255)] | None = None


class ChangeKind(StrEnum):
    """What became of a case between earlier runs and this one."""

    REGRESSED = "regressed"
    """It passed, or failed as expected, and now fails, or fails earlier or much worse."""
    FIXED = "fixed"
    """It failed and now passes."""
    NEW = "new"
    """It has no earlier result, or runs again after it was gone."""
    GONE = "gone"
    """It was tested and is no longer planned, or is skipped."""
    FLAKY = "flaky"
    """It passes and fails while nothing recorded differs."""
    DRIFTED = "drifted"
    """A measured value took a step while the status stayed."""
    RELAXED = "relaxed"
    """A tolerance, an input or an expectation was loosened, so the status says less than before."""
    TIGHTENED = "tightened"
    """A limit was tightened and the case fails under it, with the raw error it had before."""
    STALE_EXPECTATION = "stale_expectation"
    """An expected failure passes."""
    INFRA = "infra"
    """No result for reasons that are not the device's."""
    INCOMPLETE = "incomplete"
    """Planned, and the run ended without a result."""


class Change(Record):
    """One thing that became of one case. Better and worse are counted apart, never summed."""

    case: str
    kind: ChangeKind
    direction: Literal["better", "worse", "neutral"]
    run: str
    """Run that shows it."""
    since: str
    """First run that shows it; for a step in a noisy value earlier than `run`."""
    before: str | None = None
    """Last run that shows the case as it was; None where there is none."""
    status_before: Status | None = None
    status: Status | None = None
    metric: str | None = None
    """For a step: ``relative_l2`` or ``run_seconds``."""
    value_before: float | None = None
    value: float | None = None
    sentence: str
    """One sentence for people."""
