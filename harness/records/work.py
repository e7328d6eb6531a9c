"""What the controller asks of an isolated process, and what it answers."""

from __future__ import annotations

from harness.records.base import Dtype, Record, Role
from harness.records.comparison import Comparison
from harness.records.localization import Localization, ModuleEvidence
from harness.records.observation import Checkpoint, Observation
from harness.records.plan import Case


class ReferencePart(Record):
    """One stored observation that is to be made: the reference, or a control in some dtype."""

    role: Role
    dtype: Dtype
    folder: str
    """Where its tensors and its record go; an empty folder that nobody else writes."""


class ReferenceWork(Record):
    """Make the missing parts of a case's reference."""

    case: Case
    checkpoint: Checkpoint
    threads: int
    parts: tuple[ReferencePart, ...]
    reference_folder: str
    """Folder of the reference, made before or as one of the parts: the control is fed its tokens."""


class ReferenceDone(Record):
    """The parts were made and stored."""

    observations: tuple[Observation, ...]


class CandidateWork(Record):
    """Run a case on its target and compare."""

    case: Case
    checkpoint: Checkpoint
    threads: int
    reference_folder: str
    control_folder: str
    tensors: str
    """File that the candidate's outputs are written to; the controller keeps it for failures only."""
    memory: int | None = None
    """Host bytes that the process may use; None: no limit."""


class CandidateDone(Record):
    """The candidate ran and was compared."""

    observation: Observation
    comparison: Comparison
    """Outputs, and as ``module:<name>[, call <n>][, tensor <n>]`` the worst of the forward taken apart."""
    modules: ModuleEvidence | None = None


class LocalizeWork(Record):
    """Find where a case first goes wrong."""

    case: Case
    checkpoint: Checkpoint
    threads: int
    reference_folder: str
    """The candidate is fed the reference's tokens."""
    seconds: float
    """Time that the search may take."""
    evidence: ModuleEvidence | None = None
    """Of the run, where there is one: spares the first half of the search."""
    reproducer: str | None = None
    """Folder for a reproducer; None for none."""


class LocalizeDone(Record):
    """The search has ended."""

    localization: Localization
    reproducer: str | None = None
    """Why no reproducer was written; None when one was, or none was asked for."""
