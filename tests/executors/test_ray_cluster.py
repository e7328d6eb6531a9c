"""Calls on a real cluster of two nodes: sized, lost, refused, interrupted."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import psutil
import pytest

from harness.executors import LostNodeError, RayCluster, ray_cluster
from tests.ray_nodes import ray_nodes

MIB = 1 << 20
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:ray.*", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ray_nodes(2) as cluster:
        yield cluster.address


@pytest.fixture
def cluster(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    monkeypatch.setenv("RAY_ADDRESS", address)
    cluster = RayCluster()
    yield cluster
    cluster.close()


def where(path: Path) -> int:
    path.write_text(str(os.getpid()))
    return os.getpid()


def die(signal_number: int) -> None:
    os.kill(os.getpid(), signal_number)


def stay(path: Path) -> None:
    where(path)
    time.sleep(3600)


def test_cases_are_sized_so_that_no_node_is_overcommitted(cluster: RayCluster) -> None:
    assert (cluster.nodes, cluster.cores, cluster.memory) == (2, 2, 4096 * MIB)
    assert [cluster.threads(workers) for workers in (1, 2, 5)] == [1, 1, 1], "never more than one node has"
    assert cluster.memory_for(1, needed=0) == 2048 * MIB, "an even share"
    assert cluster.memory_for(1, needed=4096 * MIB) == 2048 * MIB, "what is larger than a node begins alone on one"


def test_a_call_answers_or_raises_what_the_function_raises(cluster: RayCluster, tmp_path: Path) -> None:
    pid = cluster.call(where, tmp_path / "pid", cores=1, memory=MIB)
    assert (tmp_path / "pid").read_text() == str(pid) != str(os.getpid())
    with pytest.raises(FileNotFoundError, match="No such file or directory") as caught:
        cluster.call(where, tmp_path / "nowhere" / "pid", cores=1, memory=MIB)
    assert type(caught.value) is FileNotFoundError, "the function's own, not the cluster's"


def test_a_lost_worker_is_told_and_the_next_call_runs(cluster: RayCluster, tmp_path: Path) -> None:
    with pytest.raises(LostNodeError, match="WorkerCrashedError: "):
        cluster.call(die, signal.SIGKILL, cores=1, memory=MIB)
    assert cluster.call(where, tmp_path / "pid", cores=1, memory=MIB)


def test_what_no_node_can_run_does_not_wait_for_ever(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "NODE_SECONDS", 0.1)
    with pytest.raises(LostNodeError, match=r"no node is left that has 3 cores and 0\.0 GiB"):
        cluster.call(die, signal.SIGKILL, cores=3, memory=MIB)


def test_an_interruption_ends_calls_and_their_processes(cluster: RayCluster, tmp_path: Path) -> None:
    ends: list[type[BaseException]] = []

    def call() -> None:
        try:
            cluster.call(stay, tmp_path / "pid", cores=1, memory=MIB)
        except BaseException as error:  # noqa: BLE001 - looked at below
            ends.append(type(error))

    thread = threading.Thread(target=call)
    thread.start()
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert thread.is_alive()
        time.sleep(0.05)
    worker = psutil.Process(int((tmp_path / "pid").read_text()))
    cluster.abort()
    thread.join()
    assert ends == [CancelledError]
    cluster.close()
    psutil.wait_procs([worker], timeout=60)
    assert not worker.is_running()
