"""A real Ray cluster on this machine: a head without cores and nodes of one core each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

NODE = {"num_cpus": 1, "memory": 2 << 30, "object_store_memory": 80 << 20}


@contextlib.contextmanager
def ray_nodes(count: int) -> Iterator[Any]:
    """A cluster of so many nodes; its `address` goes to ``RAY_ADDRESS``."""
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(count):
            cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()


def lose_node_of(cluster: Any, pid: int) -> None:
    """Take the node away on which a process runs, with everything on it, as a power cut does."""
    above = {process.pid for process in psutil.Process(pid).parents()}
    for node in cluster.worker_nodes:
        raylet = node.all_processes["raylet"][0].process
        if raylet.pid in above:
            for process in [*psutil.Process(raylet.pid).children(recursive=True), psutil.Process(raylet.pid)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            return
    raise AssertionError(f"no node runs process {pid}")
