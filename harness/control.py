"""The controller's side of one run: plan, pool, writer, and what the end needs of each result."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from harness import environment, matrix, nightly, nodes, pipeline, store
from harness.errors import HarnessError, StoreError, UsageError
from harness.executors import Job, LocalPool, RayCluster, read_durations, record_durations
from harness.ledger import Ledger
from harness.options import settings_from
from harness.records import NO_RESULT, Case, CaseResult, ExpectationMode, OutcomeKind, Run, Status
from harness.terminal import harmless
from harness.verdict.exits import exit_status

PATIENCE = 15.0
"""Seconds that an interrupted run waits for what is being ended."""
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM)
DETAIL = 1500
"""Characters of a traceback or log that a failing item shows."""
UNKNOWN_SECONDS = 60.0
"""Taken for a case that was never timed and whose size is unknown."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the controller keeps of a result: the rest lies in the store. A large run must not fill memory."""

    case: str
    status: Status
    kind: OutcomeKind
    sentence: str
    flags: tuple[str, ...]
    detail: str
    """The end of the traceback or log, of those that did not complete."""
    log: str | None

    @classmethod
    def of(cls, result: CaseResult) -> Kept:
        """The kept part of a result."""
        verdict, outcome = result.verdict, result.outcome
        sentence, detail = harmless(verdict.sentence), harmless(outcome.detail[-DETAIL:])
        return cls(result.case.id, verdict.status, outcome.kind, sentence, verdict.flags, detail, result.log)


class RunControl:
    """The controller's side of one run: plan, pool, writer."""

    def __init__(self, config: pytest.Config) -> None:
        self.settings = settings_from(config)
        self._cluster: RayCluster | None = None
        if config.option.executor == "ray" and not config.option.collectonly:
            self.settings, self._cluster = nodes.joined(self.settings, config.option.workers)
        self.pipeline = pipeline.Pipeline(self.settings, self._report_stage)
        self._runner = nodes.Nodes(self.pipeline, self._cluster) if self._cluster else self.pipeline
        self.options = config.option
        self.writer: store.RunWriter | None = None
        self.run: Run | None = None
        self.exit_status = 0
        self._pool: LocalPool[str, Kept] | None = None
        self._results: dict[str, Kept] = {}
        self._cases: dict[str, Case] = {}
        self._items = 0
        self._lock = threading.Lock()
        self._ledger = Ledger()
        self._broken: HarnessError | None = None
        """Why nothing more can be written."""
        self._verbose_stages = config.option.verbose > 1
        self.selected = self._select()
        self.selection_understood = False
        self._known = read_durations(self._durations)

    def _refuse_idle_drills(self, cases: tuple[Case, ...]) -> None:
        """A drill that strikes no process of this run would look like a fault that was survived."""
        names = [name for case in cases for name in (case.id, f"reference/{case.id}", f"probe/{case.target}")]
        for drill in self.settings.drills:
            if not any(fnmatchcase(name, drill.case) for name in names):
                raise UsageError(f"--drill '{drill}': no selected case matches {drill.case!r}; it would prove nothing")

    def _select(self) -> tuple[Case, ...]:
        option = self.options
        cases = matrix.select(
            self.pipeline.plan(),
            models=tuple(option.model),
            tasks=tuple(option.task),
            targets=tuple(option.target),
            modes=tuple(option.mode),
            dtypes=tuple(option.dtype),
            checks=tuple(option.check),
        )
        self._refuse_idle_drills(cases)
        if option.shard:
            index, count = matrix.parse_shard(option.shard)
            # From a named file alone, never from this machine's own record: all machines have to split alike.
            known = read_durations(Path(option.balance_by)) if option.balance_by else None
            cases = matrix.shard(cases, index, count, known)
        return cases

    def header(self) -> list[str]:
        """Lines for the top of the output."""
        profile = self.settings.profile or "all rows"
        where = f" on a Ray cluster (nodes: {self._cluster.nodes})" if self._cluster else ""
        return [
            f"conformance: {self.settings.manifest_path.name}, profile {profile}, {len(self.selected)} cases",
            f"workers: {self.settings.workers}{where}, threads per case: {self.settings.threads}",
            f"run directory: {_relative(self.settings.run_directory)}",
        ]

    def start(self, cases: tuple[Case, ...]) -> None:
        """Write the plan, keep the results of a resumed run, queue the rest."""
        if not cases:
            raise UsageError("the selection plans no case; 'conformance list' shows what there is")
        directory = self.settings.run_directory
        if (directory / store.RUN_FILE).exists():
            if not self.options.resume:
                raise UsageError(f"{_relative(directory)}: holds a run already; use --resume or another --run-dir")
            self._continue(directory, cases)
        else:
            self.run = self.pipeline.describe(store.run_id_for(directory, datetime.now(UTC)), cases)
        assert self.run is not None
        self._cases = {case.id: case for case in cases}
        self._pool = LocalPool(self._carry_out, self.settings.workers, self._runner.memory)
        with _interruptions_held_back():  # a plan that is written is a run that has begun, and is finished as one
            self.writer = store.RunWriter(directory, self.run, self.pipeline.clean)
        self._pool.submit(self._job(case) for case in cases if case.id not in self._results)

    def expected_seconds(self, case: Case) -> float:
        """How long a case may take. With -x none: that means the order of the plan, as far as the first that fails."""
        if self.options.maxfail:
            return 0.0
        return self._known.get(case.id) or matrix.estimate(case).seconds or UNKNOWN_SECONDS

    def _job(self, case: Case) -> Job[str]:
        """A case for the scheduler: cases of one model share its reference."""
        return Job(case.id, self.expected_seconds(case), matrix.estimate(case).memory_bytes, case.model)

    @property
    def _durations(self) -> Path:
        return self.settings.cache / "durations.json"

    def _continue(self, directory: Path, cases: tuple[Case, ...]) -> None:
        run = store.read_plan(directory)
        if {case.id for case in run.plan} != {case.id for case in cases}:
            raise UsageError(
                f"{_relative(directory)}: was planned with another selection ({len(run.plan)} cases, now "
                f"{len(cases)}); resume it with the options it began with: {run.selection or 'none'}"
            )
        if run.expectations is not self.settings.expectations:
            raise UsageError(f"{_relative(directory)}: was begun with --expectations {run.expectations}; resume it so")
        changed = environment.changes(run.environment.packages, environment.packages())
        if changed:
            raise UsageError(f"{_relative(directory)}: was begun with other packages ({changed}); begin a new run")
        self.run = run
        for result in store.stream_results(directory):
            self._results[result.case.id] = Kept.of(result)
        self._results = {name: kept for name, kept in self._results.items() if kept.kind not in NO_RESULT}

    def _carry_out(self, name: str) -> Kept:
        return self._keep(self._runner.run_case(self._cases[name]))

    def _keep(self, result: CaseResult) -> Kept:
        """Store a result and remember of it what the end of the run needs."""
        assert self.writer is not None
        self.writer.append(result)
        kept = Kept.of(result)
        with self._lock:
            self._ledger.enter(result)
            self._results[kept.case] = kept
        return kept

    def count_item(self) -> int:
        """Index of the item that has just ended."""
        self._items += 1
        return self._items - 1

    def wait(self, case: Case) -> Kept:
        """The result of a case, when it is there. Ends the session when results cannot be written."""
        if case.id in self._results:
            return self._results[case.id]
        assert self._pool is not None
        try:
            return self._pool.result(case.id)
        except StoreError as error:
            self._broken = error
            pytest.exit(str(error), returncode=error.exit_status)

    def finish(self, interrupted: bool) -> None:
        """Cancel what has not begun, write what is known about every planned case, close the files."""
        assert self._pool is not None
        assert self.writer is not None
        assert self.run is not None
        self._pool.cancel()
        if interrupted or self._broken:
            self._runner.abort()
        self._pool.close(PATIENCE if interrupted or self._broken else None)
        try:
            self._complete(interrupted)
        except (HarnessError, OSError) as error:
            self._broken = self._broken or StoreError(f"the run could not be finished: {error}")
        if self._broken:
            self.exit_status = self._broken.exit_status
            self.writer.close()
        if self.options.report and self.run.finished:
            nightly.publish([self.settings.run_directory], Path(self.options.report))

    def _complete(self, interrupted: bool) -> None:
        """Give every planned case a result and write the totals; nothing of it once the store is broken."""
        assert self._pool is not None
        assert self.writer is not None
        assert self.run is not None
        if self._broken:
            return
        for case in self.run.plan:
            if case.id not in self._results:
                # What is in flight at an interruption is ended by us: no fault, and a resumed run tries it again.
                error = None if interrupted else self._pool.failure(case.id)
                self._keep(self.pipeline.faulted(case, error) if error else self.pipeline.cancelled(case))
        ends = ((kept.status, kept.kind) for kept in self._results.values())
        self.exit_status = 130 if interrupted else exit_status(ends, self._allowed(), self.settings.expectations)
        changed = environment.changes(self.run.environment.packages, environment.packages())
        if changed:
            self._broken = HarnessError(
                f"packages changed while the run went on, its results are of neither: {changed}"
            )
            self.exit_status = self._broken.exit_status
        seconds = self._ledger.seconds(self._pool.busy_seconds)
        self.run = self.writer.finish(datetime.now(UTC), self.exit_status, seconds)
        record_durations(self._durations, self._ledger.durations)

    def _allowed(self) -> frozenset[OutcomeKind]:
        profile = self.pipeline.manifest.profiles.get(self.settings.profile or "")
        named = {OutcomeKind(kind) for kind in self.options.allow_notrun}
        return frozenset(named | set(profile.allow_notrun if profile else ()))

    def summary(self) -> list[str]:
        """Totals, then a line for each case that is not as it should be."""
        assert self.run is not None
        counts = Counter(result.status for result in self._results.values())
        lines = ["  ".join(f"{status} {counts[status]}" for status in Status if counts[status])]
        lines += self._told_aside()
        for case in self.run.plan:
            result = self._results[case.id]
            quiet = result.status in (Status.PASS, Status.XFAIL) and not result.flags
            if not quiet:
                flags = f" [{', '.join(result.flags)}]" if result.flags else ""
                lines.append(f"{result.status:<6} {case.id}{flags}: {result.sentence}")
        lines += self._ledger.lines(self.run.seconds, self.settings.workers)
        if self.options.report:
            lines.append(f"report: {Path(self.options.report) / 'index.html'}")
        lines.append(f"run directory: {_relative(self.settings.run_directory)}  exit status: {self.exit_status}")
        return lines

    def _told_aside(self) -> list[str]:
        """What came of expectations that were set aside."""
        if self.settings.expectations is not ExpectationMode.VALIDATE:
            return []
        flags = Counter(flag for result in self._results.values() for flag in result.flags)
        told = f"fail as expected {flags['as_expected']}, contradict their entry {flags['unexpected']}"
        return [f"expectations are set aside (validate), so FAIL does not make the run red: {told}"]

    def complaint(self) -> str | None:
        """Why the run could not be finished; None when it was."""
        return harmless(str(self._broken)) if self._broken else None

    def close(self) -> None:
        """End what is still running."""
        self._runner.close()

    def _report_stage(self, case: Case, stage: str) -> None:
        if self._verbose_stages:
            print(f"  {datetime.now(UTC):%H:%M:%S} {case.id}: {stage}", flush=True)  # noqa: T201


@contextlib.contextmanager
def _interruptions_held_back() -> Iterator[None]:
    """Let an interruption that arrives here strike at the end of the block."""
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted
        yield
        return
    arrived: list[int] = []
    before = {number: signal.signal(number, lambda number, _: arrived.append(number)) for number in INTERRUPTIONS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for interruption in arrived:
        signal.raise_signal(interruption)


def _relative(path: Path) -> str:
    """A path as a person at this directory would type it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
