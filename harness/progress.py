"""What is known about a case while it goes through the stages, and its way out of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from harness.records import (
    Attempt,
    Case,
    Checkpoint,
    Comparison,
    ModuleEvidence,
    Observation,
    Outcome,
    Role,
    Stage,
)


@dataclass
class Progress:
    """A case under way."""

    case: Case
    started: datetime
    found: Checkpoint | None = None
    """Its checkpoint, once resolved."""
    observations: dict[Role, Observation] = field(default_factory=dict)
    comparison: Comparison | None = None
    modules: ModuleEvidence | None = None
    seconds: dict[Stage, float] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    log: str | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint of a case that is past the resolve stage."""
        assert self.found is not None
        return self.found


class Stop(Exception):  # noqa: N818 - the way out of the stages, not an error
    """A case ends here with an outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome
