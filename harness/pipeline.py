"""The stages in order, on the controller's side. `subject` is its other half, inside a case's process."""

from __future__ import annotations

import hashlib
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from harness import checkpoints, environment, manifest, matrix, verdict
from harness.checkpoints.scrub import scrub
from harness.errors import CheckpointError, UsageError
from harness.isolate import NO_DISK, Ended
from harness.processes import Kind, Processes, ended_differently
from harness.records import (
    Attempt,
    CandidateDone,
    CandidateWork,
    Case,
    CaseResult,
    Checkpoint,
    Comparison,
    Dtype,
    LocalizeDone,
    LocalizeWork,
    Manifest,
    ModuleEvidence,
    Observation,
    Outcome,
    OutcomeKind,
    ReferenceDone,
    ReferencePart,
    ReferenceWork,
    Role,
    Run,
    Stage,
    Status,
)
from harness.references import ReferenceStore, key, provenance
from harness.settings import Settings

LOCALIZED = {
    OutcomeKind.COMPLETED,
    OutcomeKind.UNSUPPORTED_OP,
    OutcomeKind.COMPILE_ERROR,
    OutcomeKind.RUNTIME_ERROR,
    OutcomeKind.DEVICE_ERROR,
}
"""Failures that a second, slower look can explain: the process has to live."""


@dataclass
class _Progress:
    """What is known about a case while it goes through the stages."""

    case: Case
    started: datetime
    checkpoint: Checkpoint | None = None
    observations: dict[Role, Observation] = field(default_factory=dict)
    comparison: Comparison | None = None
    modules: ModuleEvidence | None = None
    seconds: dict[Stage, float] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    log: str | None = None


class _Stop(Exception):  # noqa: N818 - the way out of the stages, not an error
    """A case ends here with an outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


class Pipeline:
    """Carries cases out. `run_case` is safe to call from many threads."""

    def __init__(self, settings: Settings, on_stage: Callable[[Case, str], None] | None = None) -> None:
        self.settings = settings
        self.manifest: Manifest = manifest.load(settings.manifest_path)
        self._profile = self.manifest.profiles.get(settings.profile or "")
        self._on_stage = on_stage or (lambda case, stage: None)
        self.clean = _cleaner(settings.secrets)
        self._processes = Processes(settings, self.clean, self._on_stage)
        self._references = ReferenceStore(settings.cache / "references")
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._checkpoints: dict[str, Checkpoint | CheckpointError] = {}
        self._refreshed: set[str] = set()
        self._left_to_localize = settings.localize_total

    def plan(self) -> tuple[Case, ...]:
        """All cases of the profile, before any selection."""
        return matrix.plan(self.manifest, profile=self.settings.profile)

    def describe(self, run_id: str, cases: tuple[Case, ...]) -> Run:
        """The run as it starts: plan and environment."""
        path = self.settings.manifest_path
        return Run(
            run_id=run_id,
            started=datetime.now(UTC),
            profile=self.settings.profile,
            selection=self.settings.selection,
            expectations=self.settings.expectations,
            manifest_digest=hashlib.sha256(path.read_bytes()).hexdigest(),
            environment=environment.capture(self.settings.workers, self.settings.threads),
            plan=cases,
        )

    def run_case(self, case: Case) -> CaseResult:
        """Plan decisions, checkpoint, reference, candidate, verdict. What the subject does never raises."""
        progress = _Progress(case, datetime.now(UTC))
        try:
            self._decide_before_running(case)
            progress.checkpoint = self._resolve(progress)
            reference, control = self._reference(progress)
            outcome = self._candidate(progress, reference, control)
        except _Stop as stop:
            outcome = stop.outcome
        result = self._judge(progress, outcome)
        return self._explained(progress, result) if result.verdict.status is Status.FAIL else result

    def localize(self, case: Case, seconds: float, reproducer: Path | None = None) -> LocalizeDone:
        """Where a case first goes wrong, and a folder that reproduces it alone.

        Raises UsageError where the case cannot run at all.
        """
        progress = _Progress(case, datetime.now(UTC))
        try:
            progress.checkpoint = self._resolve(progress)
            self._reference(progress)
            ended = self._first_wrong(progress, seconds, reproducer)
        except _Stop as stop:
            raise UsageError(f"{case.id}: {stop.outcome.kind}: {stop.outcome.message}") from stop
        if ended.value is None:
            raise UsageError(f"{case.id}: the search ended with {ended.outcome.kind}: {ended.outcome.message}")
        return LocalizeDone.model_validate_json(ended.value)

    def _explained(self, progress: _Progress, result: CaseResult) -> CaseResult:
        """A failure with its localisation, where the time suffices and the search ends."""
        if progress.checkpoint is None or result.outcome.kind not in LOCALIZED:
            return result
        with self._locks["localization"]:
            seconds = min(self.settings.localize_seconds, self._left_to_localize)
        if seconds <= 0:
            return result
        ended = self._first_wrong(progress, seconds, None)
        with self._locks["localization"]:
            self._left_to_localize -= ended.total_seconds
        if ended.value is None:
            return result
        found = LocalizeDone.model_validate_json(ended.value).localization
        # The walk's numbers are stored once, with the case.
        modules = result.modules or found.evidence
        found = found.model_copy(update={"evidence": ModuleEvidence(), "peak_memory": ended.peak_memory})
        return result.model_copy(update={"localization": found, "modules": modules, "finished": datetime.now(UTC)})

    def _first_wrong(self, progress: _Progress, seconds: float, reproducer: Path | None) -> Ended:
        case, checkpoint = progress.case, progress.checkpoint
        assert checkpoint is not None
        reference, _ = self._reference(progress)
        work = LocalizeWork(
            case=case,
            checkpoint=checkpoint,
            threads=self.settings.threads,
            reference_folder=str(reference),
            seconds=seconds,
            evidence=progress.modules,
            reproducer=None if reproducer is None else str(reproducer),
        )
        self._on_stage(case, "localization")
        return self._isolated(progress, "harness.investigate:find_first_wrong", work.model_dump_json(), "localization")

    def cancelled(self, case: Case) -> CaseResult:
        """The result of a case that was planned and taken back."""
        message = "cancelled before it began"
        return self._judge(_Progress(case, datetime.now(UTC)), Outcome(kind=OutcomeKind.CANCELLED, message=message))

    def faulted(self, case: Case, error: BaseException) -> CaseResult:
        """The result of a case at which the harness itself failed."""
        outcome = Outcome(
            kind=OutcomeKind.HARNESS_FAULT,
            message=f"{type(error).__name__}: {error}",
            detail="".join(traceback.format_exception(error))[-12_000:],
        )
        return self._judge(_Progress(case, datetime.now(UTC)), outcome)

    @property
    def memory(self) -> int:
        """Host bytes that all processes of the run may use together."""
        return self._processes.memory

    def abort(self) -> None:
        """End what is running, as cancelled."""
        self._processes.abort()

    def close(self) -> None:
        """End the fork server."""
        self._processes.close()

    def _judge(self, progress: _Progress, outcome: Outcome) -> CaseResult:
        judged = verdict.judge(
            progress.case, outcome, progress.comparison, progress.observations, mode=self.settings.expectations
        )
        if ended_differently(progress.attempts):
            judged = judged.model_copy(update={"flags": (*judged.flags, "flaky")})
        if judged.status is Status.PASS:
            self._tensors(progress.case).unlink(missing_ok=True)  # kept for failures only
        return CaseResult(
            case=progress.case,
            outcome=outcome,
            verdict=judged,
            checkpoint=progress.checkpoint,
            observations=progress.observations,
            comparison=progress.comparison,
            modules=progress.modules,
            started=progress.started,
            finished=datetime.now(UTC),
            seconds=progress.seconds,
            attempts=tuple(progress.attempts),
            log=progress.log,
        )

    def _decide_before_running(self, case: Case) -> None:
        if case.excluded:
            raise _Stop(Outcome(kind=OutcomeKind.EXCLUDED, message=case.excluded))
        if self._profile is not None and not self._profile.check_fit:
            return
        memory = self.memory
        reason = matrix.fits(case, memory)
        if reason is None and case.parameters is None:
            reason = matrix.fits(case, memory, self._parameters(case))
        if reason is not None:
            raise _Stop(Outcome(kind=OutcomeKind.DOES_NOT_FIT, message=reason))

    def _parameters(self, case: Case) -> int | None:
        """The size that the checkpoint's own metadata tells, before anything large is fetched."""
        with self._locks[f"resolve:{case.source.model_dump_json()}"]:
            facts = checkpoints.describe(
                case.source,
                cache=self.settings.cache / "checkpoints",
                base=self.settings.manifest_path.parent,
                offline=self.settings.offline,
            )
        return facts.parameters if facts else None

    def _resolve(self, progress: _Progress) -> Checkpoint:
        """The case's checkpoint, brought once per run."""
        case = progress.case
        began = datetime.now(UTC)
        self._on_stage(case, Stage.RESOLVE)
        name = case.source.model_dump_json()
        with self._locks[f"resolve:{name}"]:
            found = self._checkpoints.get(name)
            if found is None:
                found = self._bring(case)
                self._checkpoints[name] = found
        progress.seconds[Stage.RESOLVE] = (datetime.now(UTC) - began).total_seconds()
        if isinstance(found, CheckpointError):
            raise _Stop(Outcome(kind=OutcomeKind(found.kind), stage=Stage.RESOLVE, message=str(found)))
        return found

    def _bring(self, case: Case) -> Checkpoint | CheckpointError:
        try:
            return checkpoints.resolve(
                case.source,
                cache=self.settings.cache / "checkpoints",
                base=self.settings.manifest_path.parent,
                offline=self.settings.offline,
                timeout=case.timeouts.resolve,
            )
        except CheckpointError as error:
            return error

    def _reference(self, progress: _Progress) -> tuple[Path, Path]:
        """Folders of the stored reference and control; makes what is missing, once per key."""
        case, checkpoint = progress.case, progress.checkpoint
        assert checkpoint is not None
        stack = environment.stack_versions(self.settings.threads)
        facts = {
            Role.REFERENCE: provenance(case, checkpoint, Role.REFERENCE, Dtype.FLOAT32, stack),
            Role.CONTROL: provenance(case, checkpoint, Role.CONTROL, case.dtype, stack),
        }
        with self._locks[f"reference:{key(facts[Role.REFERENCE])}"]:
            try:
                self._complete(progress, facts)
            except CheckpointError as error:
                kind = OutcomeKind(error.kind)
                raise _Stop(Outcome(kind=kind, stage=Stage.LOAD, message=str(error))) from error
            except OSError as error:
                if error.errno not in NO_DISK:
                    raise
                message = f"{error.filename or self._references.root}: {error.strerror}; free space or move the cache"
                raise _Stop(Outcome(kind=OutcomeKind.UNAVAILABLE, stage=Stage.LOAD, message=message)) from error
        folders = [self._references.folder(key(facts[role])) for role in (Role.REFERENCE, Role.CONTROL)]
        return folders[0], folders[1]

    def _complete(self, progress: _Progress, facts: dict[Role, dict[str, str]]) -> None:
        """Read the stored parts and make the missing ones. Raises CheckpointError for a bad entry."""
        missing: dict[Role, dict[str, str]] = {}
        for role, fact in facts.items():
            name = key(fact)
            if self.settings.refresh_reference and name not in self._refreshed:
                self._references.forget(fact)
                self._refreshed.add(name)
            entry = self._references.read(fact)
            if entry is None:
                missing[role] = fact
            else:
                progress.observations[role] = entry.observation.model_copy(update={"cached": True})
        if missing:
            self._make_references(progress, facts, missing)

    def _make_references(
        self, progress: _Progress, facts: dict[Role, dict[str, str]], missing: dict[Role, dict[str, str]]
    ) -> None:
        case, checkpoint = progress.case, progress.checkpoint
        assert checkpoint is not None
        self._on_stage(case, "reference")
        stored = self._references.folder(key(facts[Role.REFERENCE]))
        with self._references.draft() as draft:
            parts = []
            for role, fact in missing.items():
                folder = draft / role.value
                folder.mkdir()
                parts.append(ReferencePart(role=role, dtype=Dtype(fact["dtype"]), folder=str(folder)))
            made_here = Role.REFERENCE in missing
            reference = draft / Role.REFERENCE.value if made_here else stored
            work = ReferenceWork(
                case=case,
                checkpoint=checkpoint,
                threads=self.settings.threads,
                parts=tuple(parts),
                reference_folder=str(reference),
            )
            ended = self._isolated(progress, "harness.subject:make_references", work.model_dump_json(), "reference")
            if ended.value is None:
                raise _Stop(_reference_failed(ended.outcome))
            done = ReferenceDone.model_validate_json(ended.value)
            for part, observation in zip(parts, done.observations, strict=True):
                kept = observation.model_copy(update={"peak_memory": ended.peak_memory, "seconds": ended.seconds})
                self._references.publish(Path(part.folder), missing[part.role], kept)
                progress.observations[part.role] = kept

    def _candidate(self, progress: _Progress, reference: Path, control: Path) -> Outcome:
        case, checkpoint = progress.case, progress.checkpoint
        assert checkpoint is not None
        tensors = self._tensors(case)
        tensors.parent.mkdir(parents=True, exist_ok=True)
        work = CandidateWork(
            case=case,
            checkpoint=checkpoint,
            threads=self.settings.threads,
            reference_folder=str(reference),
            control_folder=str(control),
            tensors=str(tensors),
            memory=self._processes.memory_for(case),
        )
        ended = self._isolated(progress, "harness.subject:observe_candidate", work.model_dump_json(), "candidate")
        progress.seconds.update(ended.seconds)
        if ended.value is not None:
            done = CandidateDone.model_validate_json(ended.value)
            progress.comparison = done.comparison
            progress.modules = done.modules
            progress.observations[Role.CANDIDATE] = done.observation.model_copy(
                update={"peak_memory": ended.peak_memory, "seconds": ended.seconds}
            )
        return ended.outcome

    def _tensors(self, case: Case) -> Path:
        return self.settings.run_directory / "tensors" / f"{matrix.slug(case.id)}.safetensors"

    def _isolated(self, progress: _Progress, entry: str, request: str, what: Kind) -> Ended:
        ended, attempts = self._processes.run(progress.case, entry, request, what)
        if what == "candidate" or len(attempts) > 1:
            progress.attempts += attempts
        progress.log = attempts[-1].log if attempts else progress.log
        return ended


def _cleaner(secrets: tuple[str, ...]) -> Callable[[str], str]:
    """What takes these secrets, and everything that looks like a credential, out of a text."""

    def clean(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "***")
        return scrub(text)

    return clean


def _reference_failed(outcome: Outcome) -> Outcome:
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
