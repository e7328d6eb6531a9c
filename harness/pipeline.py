"""The stages in order, on the controller's side. `subject` is its other half, inside a case's process."""

from __future__ import annotations

import hashlib
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from harness import environment, manifest, matrix, verdict
from harness.checkpoints.scrub import scrub
from harness.errors import CheckpointError, UsageError
from harness.isolate import Ended
from harness.oracle import Oracle
from harness.processes import Kind, Processes, ended_differently
from harness.progress import Progress, Stop
from harness.records import (
    Attempt,
    CandidateDone,
    CandidateWork,
    Case,
    CaseResult,
    LocalizeDone,
    LocalizeWork,
    Manifest,
    ModuleEvidence,
    Outcome,
    OutcomeKind,
    Role,
    Run,
    Stage,
    Status,
)
from harness.settings import Settings
from harness.stock import Stock

LOCALIZED = {
    OutcomeKind.COMPLETED,
    OutcomeKind.UNSUPPORTED_OP,
    OutcomeKind.COMPILE_ERROR,
    OutcomeKind.RUNTIME_ERROR,
    OutcomeKind.DEVICE_ERROR,
}
"""Failures that a second, slower look can explain: the process has to live."""


class Pipeline:
    """Carries cases out. `run_case` is safe to call from many threads."""

    def __init__(
        self,
        settings: Settings,
        on_stage: Callable[[Case, str], None] | None = None,
        loaded: Manifest | None = None,
    ) -> None:
        """``loaded``: the manifest, where its file is on another machine."""
        self.settings = settings
        self.manifest = loaded or manifest.load(settings.manifest_path)
        self._profile = self.manifest.profiles.get(settings.profile or "")
        self._on_stage = on_stage or (lambda case, stage: None)
        self.clean = _cleaner(settings.secrets)
        self._processes = Processes(settings, self.clean, self._on_stage)
        self._stock = Stock(settings)
        self._oracle = Oracle(settings, self._isolated, self._on_stage)
        self._localizing = threading.Lock()
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

    def run_case(self, case: Case, lost: tuple[Attempt, ...] = ()) -> CaseResult:
        """Plan decisions, checkpoint, reference, candidate, verdict. What the subject does never raises.

        ``lost``: earlier attempts, at machines that went away.
        """
        progress = Progress(case, datetime.now(UTC), attempts=list(lost))
        with ExitStack() as stack:  # keeps the checkpoint until the case is explained
            try:
                self._decide_before_running(case)
                stack.enter_context(self._checkpoint(progress))
                reference, control = self._oracle.folders(progress)
                outcome = self._candidate(progress, reference, control)
            except Stop as stop:
                outcome = stop.outcome
            result = self._judge(progress, outcome)
            return self._explained(progress, result) if result.verdict.status is Status.FAIL else result

    def localize(self, case: Case, seconds: float, reproducer: Path | None = None) -> LocalizeDone:
        """Where a case first goes wrong, and a folder that reproduces it alone.

        Raises UsageError where the case cannot run at all.
        """
        progress = Progress(case, datetime.now(UTC))
        try:
            with self._checkpoint(progress):
                ended = self._first_wrong(progress, seconds, reproducer)
        except Stop as stop:
            raise UsageError(f"{case.id}: {stop.outcome.kind}: {stop.outcome.message}") from stop
        if ended.value is None:
            raise UsageError(f"{case.id}: the search ended with {ended.outcome.kind}: {ended.outcome.message}")
        return LocalizeDone.model_validate_json(ended.value)

    def _explained(self, progress: Progress, result: CaseResult) -> CaseResult:
        """A failure with its localisation, where the time suffices and the search ends."""
        if progress.found is None or result.outcome.kind not in LOCALIZED:
            return result
        with self._localizing:
            seconds = min(self.settings.localize_seconds, self._left_to_localize)
        if seconds <= 0:
            return result
        ended = self._first_wrong(progress, seconds, None)
        with self._localizing:
            self._left_to_localize -= ended.total_seconds
        if ended.value is None:
            return result
        found = LocalizeDone.model_validate_json(ended.value).localization
        # The walk's numbers are stored once, with the case.
        modules = result.modules or found.evidence
        found = found.model_copy(update={"evidence": ModuleEvidence(), "peak_memory": ended.peak_memory})
        return result.model_copy(update={"localization": found, "modules": modules, "finished": datetime.now(UTC)})

    def _first_wrong(self, progress: Progress, seconds: float, reproducer: Path | None) -> Ended:
        reference, _ = self._oracle.folders(progress)
        work = LocalizeWork(
            case=progress.case,
            checkpoint=progress.checkpoint,
            threads=self.settings.threads,
            reference_folder=str(reference),
            seconds=seconds,
            evidence=progress.modules,
            reproducer=None if reproducer is None else str(reproducer),
        )
        self._on_stage(progress.case, "localization")
        return self._isolated(progress, "harness.investigate:find_first_wrong", work.model_dump_json(), "localization")

    def cancelled(self, case: Case) -> CaseResult:
        """The result of a case that was planned and taken back."""
        return self.without_result(case, OutcomeKind.CANCELLED, "cancelled before it began")

    def without_result(
        self, case: Case, kind: OutcomeKind, message: str, attempts: Iterable[Attempt] = ()
    ) -> CaseResult:
        """The result of a case of which nothing is learnt, and why."""
        progress = Progress(case, datetime.now(UTC), attempts=list(attempts))
        return self._judge(progress, Outcome(kind=kind, message=message))

    def faulted(self, case: Case, error: BaseException) -> CaseResult:
        """The result of a case at which the harness itself failed."""
        outcome = Outcome(
            kind=OutcomeKind.HARNESS_FAULT,
            message=f"{type(error).__name__}: {error}",
            detail="".join(traceback.format_exception(error))[-12_000:],
        )
        return self._judge(Progress(case, datetime.now(UTC)), outcome)

    @property
    def memory(self) -> int:
        """Host bytes that all processes of the run may use together."""
        return self._processes.memory

    @property
    def left_to_localize(self) -> float:
        """Seconds that may still go into localisation."""
        return self._left_to_localize

    def allow(self, memory: int, localize: float) -> None:
        """Bound what runs from now on: host bytes of all processes, seconds of localisation."""
        self._processes.memory = memory
        self._left_to_localize = localize

    def abort(self) -> None:
        """End what is running, as cancelled."""
        self._processes.abort()

    def close(self) -> None:
        """End the fork server."""
        self._processes.close()

    def _judge(self, progress: Progress, outcome: Outcome) -> CaseResult:
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
            checkpoint=progress.found,
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
            raise Stop(Outcome(kind=OutcomeKind.EXCLUDED, message=case.excluded))
        if self._profile is not None and not self._profile.check_fit:
            return
        memory = self.memory
        reason = matrix.fits(case, memory)
        if reason is None and case.parameters is None:
            reason = matrix.fits(case, memory, self._stock.parameters(case))
        if reason is not None:
            raise Stop(Outcome(kind=OutcomeKind.DOES_NOT_FIT, message=reason))

    @contextmanager
    def _checkpoint(self, progress: Progress) -> Iterator[None]:
        """Gives the case its checkpoint, which stays while the block runs."""
        began = datetime.now(UTC)
        self._on_stage(progress.case, Stage.RESOLVE)
        with ExitStack() as stack:
            try:
                progress.found = stack.enter_context(self._stock.using(progress.case))
            except CheckpointError as error:
                kind = OutcomeKind(error.kind)
                raise Stop(Outcome(kind=kind, stage=Stage.RESOLVE, message=str(error))) from error
            finally:
                progress.seconds[Stage.RESOLVE] = (datetime.now(UTC) - began).total_seconds()
            yield

    def _candidate(self, progress: Progress, reference: Path, control: Path) -> Outcome:
        case = progress.case
        tensors = self._tensors(case)
        tensors.parent.mkdir(parents=True, exist_ok=True)
        work = CandidateWork(
            case=case,
            checkpoint=progress.checkpoint,
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

    def _isolated(self, progress: Progress, entry: str, request: str, what: Kind) -> Ended:
        lost = sum(attempt.outcome.kind is OutcomeKind.LOST_WORKER for attempt in progress.attempts)
        ended, attempts = self._processes.run(progress.case, entry, request, what, lost)
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
