"""A Ray cluster: calls run on its nodes, each with the cores and the memory that it is going to use.

Ray places calls and notices lost nodes. It repeats nothing: whether and how often is the caller's business,
so that every attempt is seen. Ray is imported when a cluster is asked for, since it is an optional extra.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from harness.errors import HarnessError, UsageError

INSTALL = "pip install 'spyre-conformance[ray]'"
LOOK_SECONDS = 0.5
"""How often a call under way looks for an interruption and for nodes that could still run it."""
NODE_SECONDS = 60.0
"""How long a cluster may have no node for a call, for instance while an autoscaler brings one."""

Answer = TypeVar("Answer")


class LostNodeError(HarnessError):
    """The node or the worker that ran a call went away before it answered."""


class RayCluster:
    """Runs calls on the nodes of a cluster. Safe to use from many threads."""

    def __init__(self) -> None:
        """Connect: to ``RAY_ADDRESS``, else to the cluster on this machine, else to a new one of this machine alone.

        Raises UsageError where Ray is not installed or no cluster answers.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
            import ray.exceptions
        except ImportError as error:
            raise UsageError(f"--executor ray: Ray is not installed ({error}); install it with: {INSTALL}") from error
        try:
            ray.init(log_to_driver=False, include_dashboard=False, logging_level="error")
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(f"--executor ray: no cluster answers: {error}; see RAY_ADDRESS, 'ray start'") from error
        self._ray: Any = ray
        self._lost = (
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.NodeDiedError,
            ray.exceptions.OutOfMemoryError,
            ray.exceptions.ObjectLostError,
        )
        self._works: dict[Callable[..., Any], Any] = {}
        self._lock = threading.Lock()
        self._known: list[tuple[int, int]] = []
        self._asked = float("-inf")
        self._aborted = threading.Event()
        if not self._nodes():
            raise UsageError("--executor ray: no node of the cluster has a core; start one with 'ray start'")

    @property
    def nodes(self) -> int:
        """Live nodes that have cores."""
        return len(self._nodes())

    @property
    def cores(self) -> int:
        """Cores of all nodes."""
        return sum(cores for cores, _ in self._nodes())

    @property
    def memory(self) -> int:
        """Host bytes of all nodes."""
        return sum(memory for _, memory in self._nodes())

    def threads(self, workers: int) -> int:
        """Cores that each of so many cases at a time can have; never more than the largest node has."""
        return max(1, min(self.cores // workers, max(cores for cores, _ in self._nodes())))

    def memory_for(self, threads: int, needed: int) -> int:
        """Host bytes to ask for: a case's even share of the smallest node, or what it needs, if a node has that."""
        nodes = self._nodes() or [(1, needed)]
        share = min(memory // max(1, cores // threads) for cores, memory in nodes)
        return min(max(memory for _, memory in nodes), max(share, needed))

    def call(self, work: Callable[..., Answer], *arguments: Any, cores: int, memory: int) -> Answer:
        """What ``work``, a function of a module, answers on some node.

        Raises what the function raises, LostNodeError when its node is lost, CancelledError after `abort`.
        """
        task = self._remote(work).options(num_cpus=cores, memory=memory).remote(*arguments)
        possible = time.monotonic()
        try:
            while True:
                if self._ray.wait([task], timeout=LOOK_SECONDS)[0]:
                    answer: Answer = self._ray.get(task)
                    return answer
                if self._aborted.is_set():
                    raise CancelledError
                now = time.monotonic()
                if any(own[0] >= cores and own[1] >= memory for own in self._nodes()):
                    possible = now
                elif now - possible > NODE_SECONDS:
                    # One that waits can be taken back; Ray's client may die of it when the call runs or has ended.
                    self._ray.cancel(task)
                    raise LostNodeError(f"no node is left that has {cores} cores and {memory / 2**30:.1f} GiB")
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from error
        except self._lost as error:
            raise LostNodeError(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from error

    def abort(self) -> None:
        """Wait for no call any more; `close` ends what they run."""
        self._aborted.set()

    def close(self) -> None:
        """Leave the cluster, which ends whatever still runs there for this run."""
        self._ray.shutdown()

    def _remote(self, work: Callable[..., Any]) -> Any:
        with self._lock:
            if work not in self._works:
                self._works[work] = self._ray.remote(max_retries=0)(work)
            return self._works[work]

    def _nodes(self) -> list[tuple[int, int]]:
        """Cores and host bytes of each live node that has cores, asked for once in a while for all calls."""
        with self._lock:
            if time.monotonic() - self._asked > LOOK_SECONDS:
                found = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
                self._known = [(int(own["CPU"]), int(own.get("memory", 0))) for own in found if own.get("CPU", 0) >= 1]
                self._asked = time.monotonic()
            return self._known
