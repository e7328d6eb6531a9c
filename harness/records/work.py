"""What the controller asks of an isolated process, and what it answers."""

from __future__ import annotations

from harness.records.base import Dtype, Record, Role
from harness.records.comparison import Comparison
from harness.records.localization import ModuleEvidence
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


class CandidateDone(Record):
    """The candidate ran and was compared."""

    observation: Observation
    comparison: Comparison
    """Outputs, and as ``module:<name>`` the worst of the forward taken apart."""
    modules: ModuleEvidence | None = None
