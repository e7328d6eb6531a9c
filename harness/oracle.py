"""The oracle of a case: the folders of its reference and its control, read where they are stored, made where not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness import environment
from harness.errors import CheckpointError
from harness.isolate import NO_DISK, Ended
from harness.processes import Kind
from harness.progress import Progress, Stop
from harness.records import (
    Case,
    Dtype,
    Outcome,
    OutcomeKind,
    ReferenceDone,
    ReferencePart,
    ReferenceWork,
    Role,
    Stage,
)
from harness.references import ReferenceStore, key, provenance
from harness.settings import Settings

Isolated = Callable[[Progress, str, str, Kind], Ended]
"""Runs an entry of `subject` with a request, in a process of its own."""
Facts = dict[str, str]


class Oracle:
    """Finds or makes references and controls, each once per key. Safe to use from many threads."""

    def __init__(self, settings: Settings, isolated: Isolated, on_stage: Callable[[Case, str], None]) -> None:
        self._settings = settings
        self._isolated = isolated
        self._on_stage = on_stage
        self._store = ReferenceStore(settings.cache / "references")

    def folders(self, progress: Progress) -> tuple[Path, Path]:
        """Folders of the stored reference and control. Raises Stop where one cannot be had."""
        case, checkpoint = progress.case, progress.checkpoint
        stack = environment.stack_versions(self._settings.threads)
        facts = {
            Role.REFERENCE: provenance(case, checkpoint, Role.REFERENCE, Dtype.FLOAT32, stack),
            Role.CONTROL: provenance(case, checkpoint, Role.CONTROL, case.dtype, stack),
        }
        try:
            with self._store.alone(facts[Role.REFERENCE], self._patience(case)):
                self._complete(progress, facts)
        except CheckpointError as error:
            kind = OutcomeKind(error.kind)
            raise Stop(Outcome(kind=kind, stage=Stage.LOAD, message=str(error))) from error
        except OSError as error:
            if error.errno not in NO_DISK:
                raise
            message = f"{error.filename or self._store.root}: {error.strerror}; free space or move the cache"
            raise Stop(Outcome(kind=OutcomeKind.UNAVAILABLE, stage=Stage.LOAD, message=message)) from error
        folders = [self._store.folder(key(facts[role])) for role in (Role.REFERENCE, Role.CONTROL)]
        return folders[0], folders[1]

    def _patience(self, case: Case) -> float:
        """Seconds that another may take to make the same: each stage of each of its attempts."""
        stages = (Stage.LOAD, Stage.PLACE, Stage.COMPILE, Stage.RUN, Stage.COMPARE)
        allowed: list[float] = [getattr(case.timeouts, stage.value) for stage in stages]
        return (1 + self._settings.retries) * sum(allowed)

    def _complete(self, progress: Progress, facts: dict[Role, Facts]) -> None:
        """Read the stored parts and make the missing ones. Raises CheckpointError for a bad entry."""
        missing: dict[Role, Facts] = {}
        for role, fact in facts.items():
            if self._settings.refresh_before is not None:
                self._store.forget(fact, self._settings.refresh_before)
            entry = self._store.read(fact)
            if entry is None:
                missing[role] = fact
            else:
                progress.observations[role] = entry.observation.model_copy(update={"cached": True})
        if missing:
            self._make(progress, facts, missing)

    def _make(self, progress: Progress, facts: dict[Role, Facts], missing: dict[Role, Facts]) -> None:
        self._on_stage(progress.case, "reference")
        stored = self._store.folder(key(facts[Role.REFERENCE]))
        with self._store.draft() as draft:
            parts = []
            for role, fact in missing.items():
                folder = draft / role.value
                folder.mkdir()
                parts.append(ReferencePart(role=role, dtype=Dtype(fact["dtype"]), folder=str(folder)))
            made_here = Role.REFERENCE in missing
            work = ReferenceWork(
                case=progress.case,
                checkpoint=progress.checkpoint,
                threads=self._settings.threads,
                parts=tuple(parts),
                reference_folder=str(draft / Role.REFERENCE.value if made_here else stored),
            )
            ended = self._isolated(progress, "harness.subject:make_references", work.model_dump_json(), "reference")
            if ended.value is None:
                raise Stop(_failed(ended.outcome))
            done = ReferenceDone.model_validate_json(ended.value)
            for part, observation in zip(parts, done.observations, strict=True):
                kept = observation.model_copy(update={"peak_memory": ended.peak_memory, "seconds": ended.seconds})
                self._store.publish(Path(part.folder), missing[part.role], kept)
                progress.observations[part.role] = kept


def _failed(outcome: Outcome) -> Outcome:
    """A reference that could not be made says nothing about the device."""
    told = {
        OutcomeKind.INVALID_CHECKPOINT,
        OutcomeKind.NONDETERMINISTIC,
        OutcomeKind.UNSUPPORTED_ARCHITECTURE,
        OutcomeKind.UNAVAILABLE,
        OutcomeKind.CANCELLED,
    }
    if outcome.kind in told:
        return outcome
    message = f"the CPU reference could not be made: {outcome.message}"
    return outcome.model_copy(update={"kind": OutcomeKind.INVALID_REFERENCE, "message": message})
