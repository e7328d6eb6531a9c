"""Cases on the nodes of a cluster: what goes there, what is done there, what comes back."""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from harness import environment, matrix
from harness.errors import HarnessError
from harness.executors import LostNodeError, RayCluster
from harness.options import secrets
from harness.pipeline import Pipeline
from harness.records import Attempt, Case, CaseResult, Manifest, Outcome, OutcomeKind, Package
from harness.settings import Settings

LOSSES = 3
"""Nodes that a case may lose: one that takes every machine down must not go round the cluster."""


@dataclass(frozen=True)
class Order:
    """A case, and all that its node has to know of the run."""

    settings: Settings
    manifest: str
    """As far as it concerns the case, JSON."""
    packages: tuple[Package, ...]
    """What the controller runs with."""
    case: str
    """JSON."""
    lost: tuple[Attempt, ...]
    memory: int
    localize: float
    """Seconds that may go into localisation."""


@dataclass(frozen=True)
class Delivery:
    """A case that was carried out."""

    result: str
    """JSON."""
    files: dict[str, bytes]
    """Logs, tensors, reproducers, by their path in the run directory."""
    localized: float
    """Seconds that went into localisation."""


class Nodes:
    """Carries cases out as `Pipeline` does, somewhere on a cluster. `run_case` is safe to call from many threads."""

    def __init__(self, pipeline: Pipeline, cluster: RayCluster) -> None:
        self._pipeline = pipeline
        self._cluster = cluster
        # Each node has secrets of its own, and takes them out of what it sends.
        self._settings = replace(pipeline.settings, workers=1, memory_limit=None, secrets=())
        self._packages = environment.packages()
        self._left_to_localize = pipeline.settings.localize_total
        self._lock = threading.Lock()

    @property
    def memory(self) -> int:
        """Host bytes of the cluster."""
        return self._cluster.memory

    def run_case(self, case: Case) -> CaseResult:
        """The result of a case; its files are in the run directory. A case whose node is lost is tried elsewhere."""
        lost: list[Attempt] = []
        while len(lost) < LOSSES:
            began = time.monotonic()
            order = self._order(case, tuple(lost))
            try:
                done = self._cluster.call(carry_out, order, cores=self._settings.threads, memory=order.memory)
            except CancelledError:
                return self._pipeline.without_result(case, OutcomeKind.CANCELLED, "interrupted on its node", lost)
            except LostNodeError as error:
                outcome = Outcome(kind=OutcomeKind.LOST_WORKER, message=str(error))
                lost.append(Attempt(outcome=outcome, seconds=time.monotonic() - began))
                continue
            with self._lock:
                self._left_to_localize -= done.localized
            for name, content in done.files.items():
                self._write(name, content)
            return CaseResult.model_validate_json(done.result)
        message = f"lost {LOSSES} nodes, the last one: {lost[-1].outcome.message}"
        return self._pipeline.without_result(case, OutcomeKind.LOST_WORKER, message, lost)

    def abort(self) -> None:
        """End what is running, as cancelled."""
        self._cluster.abort()

    def close(self) -> None:
        """Leave the cluster."""
        self._cluster.close()

    def _order(self, case: Case, lost: tuple[Attempt, ...]) -> Order:
        whole = self._pipeline.manifest
        row = whole.models[case.model]
        needed = matrix.estimate(case).memory_bytes or 0
        return Order(
            settings=self._settings,
            manifest=whole.model_copy(update={"models": {case.model: row}}).model_dump_json(),
            packages=self._packages,
            case=case.model_dump_json(),
            lost=lost,
            memory=self._cluster.memory_for(self._settings.threads, needed + needed // 4),
            localize=self._left_to_localize,
        )

    def _write(self, name: str, content: bytes) -> None:
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise HarnessError(f"a node sent a file named {name!r}, which would leave the run directory; refused")
        path = self._settings.run_directory / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


class _Host:
    """The pipeline of one worker process of a node: it lives as long as the run, and with it its fork server."""

    def __init__(self, order: Order) -> None:
        differing = environment.changes(order.packages, environment.packages())
        if differing:
            raise HarnessError(
                f"node {socket.gethostname()} has other packages than the controller ({differing}); "
                "install the same versions on all nodes"
            )
        self.folder = Path(tempfile.mkdtemp(prefix="conformance-"))
        self.settings = order.settings
        own = replace(order.settings, run_directory=self.folder, secrets=secrets())
        self._pipeline = Pipeline(own, loaded=Manifest.model_validate_json(order.manifest))

    def carry_out(self, order: Order) -> Delivery:
        """One case, and every file that it left."""
        self._pipeline.allow(order.memory, order.localize)
        result = self._pipeline.run_case(Case.model_validate_json(order.case), order.lost)
        spent = order.localize - self._pipeline.left_to_localize
        files = {}
        for path in [path for path in self.folder.rglob("*") if path.is_file()]:
            files[path.relative_to(self.folder).as_posix()] = path.read_bytes()
            path.unlink()
        told = result.model_copy(update={"worker": socket.gethostname()})
        return Delivery(told.model_dump_json(), files, spent)


_host: _Host | None = None
"""Of this worker process: it serves one run, one case at a time."""


def carry_out(order: Order) -> Delivery:
    """Runs on a node: what the case came to."""
    global _host
    if _host is None or _host.settings != order.settings:
        _host = _Host(order)
    return _host.carry_out(order)


def joined(settings: Settings, workers: int | None) -> tuple[Settings, RayCluster]:
    """Settings for a cluster, and the cluster: ``workers`` cases at a time, one per core without a number.

    Raises UsageError where there is no cluster.
    """
    cluster = RayCluster()
    count = workers or cluster.cores
    return replace(settings, workers=count, threads=cluster.threads(count)), cluster
