"""What a report is made from: runs as they were stored, handed over as plain arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.records import CaseResult, Run


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportRun:
    """One run. `results` is iterated once, in order, and may be a generator over a large file."""

    run: Run
    results: Iterable[CaseResult]
    directory: Path | None = None
    """The run directory: where `CaseResult.log` is looked up. None: logs are not linked."""
    problems: tuple[str, ...] = ()
    """What the store found damaged; shown with the run's completeness."""
    reproducers: Mapping[str, Path] = field(default_factory=dict)
    """Case id to a file or folder that reproduces the case alone."""

    @property
    def run_id(self) -> str:
        """The run's id; sorts by time."""
        return self.run.run_id


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteFacts:
    """What was written, for the caller's last line and for a decision to publish."""

    index: Path
    run_id: str | None
    level: str
    """``good``, ``attention``, ``bad``, ``incomplete`` or ``empty``; only ``good`` may be called a success."""
    sentence: str
    models: int
    cases: int
    runs: int
    files: int
    bytes: int
