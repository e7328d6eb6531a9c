"""How a run is carried out: what the options say, handed to every part of the controller."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from harness.isolate import STALL_SECONDS
from harness.records import Drill, ExpectationMode


@dataclass(frozen=True)
class Settings:
    """How a run is carried out; what is tested is the manifest's business."""

    manifest_path: Path
    cache: Path
    run_directory: Path
    profile: str | None = None
    workers: int = 1
    threads: int = 1
    offline: bool = False
    refresh_before: float | None = None
    """References and controls made before this time (seconds of the epoch) are made anew; None: none is."""
    cache_limit: int | None = None
    """Bytes of checkpoints that the cache may hold; None: what the disk takes."""
    drills: tuple[Drill, ...] = ()
    memory_limit: int | None = None
    """Host bytes that the run may use; None: all there is."""
    retries: int = 1
    """How often a case is tried again that died in a way that chance can explain."""
    stall: float = STALL_SECONDS
    selection: str = ""
    expectations: ExpectationMode = ExpectationMode.GATING
    localize_seconds: float = 300.0
    """Time to find out where a failed case first goes wrong; 0 for none."""
    localize_total: float = 3600.0
    """Time that a run may spend on that in all: later failures go without."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values that must not be written anywhere: tokens of this environment."""
