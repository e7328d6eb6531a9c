"""A real Ray cluster on this machine, in a process of its own: a head without cores and nodes of one core each."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

NODE = {"num_cpus": 1, "memory": 2 << 30, "object_store_memory": 80 << 20}


class RayNodes:
    """A running cluster."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = self._answer()
        """What goes to ``RAY_ADDRESS``."""

    def add(self) -> None:
        """One node more."""
        assert self._process.stdin is not None
        self._process.stdin.write("add\n")
        self._process.stdin.flush()
        self._answer()

    def lose_node_of(self, pid: int) -> None:
        """Take the node away on which a process runs, with everything on it, as a power cut does."""
        raylet = next(process for process in psutil.Process(pid).parents() if process.name() == "raylet")
        for process in [*raylet.children(recursive=True), raylet]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("cluster: "):
                return line.split()[1]
        raise AssertionError("the cluster did not start")


@contextlib.contextmanager
def ray_nodes(count: int) -> Iterator[RayNodes]:
    """A cluster of so many nodes while the block runs."""
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    command = [sys.executable, "-m", "tests.ray_nodes"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            nodes = RayNodes(process)
            for _ in range(count):
                nodes.add()
            yield nodes
        finally:
            process.communicate()  # the end of its input ends it


def main() -> None:
    """Hold a cluster, and add a node for each line of standard input."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    print(f"cluster: {cluster.address}", flush=True)
    for _ in sys.stdin:
        cluster.add_node(**NODE)
        print(f"cluster: {cluster.address}", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
