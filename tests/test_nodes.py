"""Runs on a real Ray cluster of two nodes: the same results as here, whatever becomes of a node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness import environment
from harness.errors import HarnessError
from harness.nodes import Nodes, Order, carry_out
from harness.pipeline import Pipeline
from harness.settings import Settings
from tests.conformance_site import Site
from tests.ray_nodes import RayNodes, ray_nodes

RAY = ("--executor", "ray", "--localize", "0")
CPU = {"target": ["cpu"], "mode": ["eager"], "dtype": ["float16"]}
PASS = "PASS completed compare"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    with ray_nodes(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def site(cluster: RayNodes, tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = Site(tmp_path_factory.mktemp("site"), environ={"RAY_ADDRESS": cluster.address})
    return site.rows({name: {} for name in "abc"}, axes=CPU)


def holder(lock: Path, process: subprocess.Popen[str]) -> int:
    """The process that hangs on a node, once it is there."""
    while not lock.exists() or not lock.read_text():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    return int(lock.read_text())


def test_a_cluster_gives_what_this_machine_gives(site: Site) -> None:
    drill = ("--drill", "b/*:place:scale=model.layers.1.mlp.down_proj.weight*1.05")
    here = site.run("here", "--localize", "0", *drill, "--workers", "2")
    there = site.run("there", *RAY, *drill)
    assert "workers: 2 on a Ray cluster (nodes: 2), threads per case: 1" in there.output
    assert there.told == here.told == {"a": PASS, "b": "FAIL completed compare", "c": PASS}
    assert there.exit_status == here.exit_status == 1
    for name, result in there.results.items():
        assert result.comparison == here.results[name].comparison, "to the last bit"
        assert result.worker
        assert [attempt.outcome.kind for attempt in result.attempts] == ["completed"]
        assert (there.directory / str(result.log)).is_file()
    names = {path.name for path in here.directory.glob("tensors/*")}
    assert {path.name for path in there.directory.glob("tensors/*")} == names
    assert len(names) == 1, "kept for failures only"


def test_a_lost_node_loses_no_result_and_no_case(site: Site, cluster: RayNodes) -> None:
    lock = site.path / "lost.lock"
    process = site.start("lost", *RAY, "--drill", f"b/*:run:grandchild={lock}@1")
    site.wait_for_results("lost", 1)
    cluster.lose_node_of(holder(lock, process))
    finished = site.finish("lost", process)
    cluster.add()
    assert finished.told == {"a": PASS, "b": PASS, "c": PASS}, finished.output
    assert finished.exit_status == 0
    lost, done = finished.results["b"].attempts
    assert (lost.outcome.kind, done.outcome.kind) == ("lost_worker", "completed")
    assert "NodeDiedError" in lost.outcome.message or "WorkerCrashedError" in lost.outcome.message
    assert "flaky" not in finished.results["b"].verdict.flags
    assert str(done.log).endswith(".candidate.2.log")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_what_runs_on_a_node_ends_with_the_run(site: Site, number: int, status: int) -> None:
    lock = site.path / f"{number}.lock"
    process = site.start(str(number), *RAY, "--drill", f"b/*:run:grandchild={lock}")
    hanging = psutil.Process(holder(lock, process))
    os.kill(process.pid, number)
    finished = site.finish(str(number), process)
    assert finished.exit_status == status
    if number == signal.SIGINT:
        assert finished.told["b"] == "NOTRUN cancelled"
        assert finished.stored.missing == ()
    _, alive = psutil.wait_procs([hanging], timeout=300)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_without_ray_it_says_how_to_install_it(tmp_path: Path) -> None:
    site = Site(tmp_path).rows({"a": {}}, axes=CPU)
    code = "import sys; sys.modules['ray'] = None; from harness.cli import main; main()"
    command = [sys.executable, "-c", code, *site.command("run", *RAY)[3:]]
    done = subprocess.run(command, cwd=tmp_path, env=site.environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "--executor ray: Ray is not installed" in done.stderr
    assert "install it with: pip install 'spyre-conformance[ray]'" in done.stderr


def test_a_node_with_other_packages_carries_out_nothing(tmp_path: Path) -> None:
    other = tuple(
        package.model_copy(update={"version": "0.1"}) if package.name == "torch" else package
        for package in environment.packages()
    )
    order = Order(Settings(tmp_path, tmp_path, tmp_path), "{}", other, "{}", (), 1 << 30, 0.0)
    with pytest.raises(HarnessError, match=r"has other packages than the controller \(torch 0\.1 -> "):
        carry_out(order)


def test_a_file_that_would_leave_the_run_directory_is_refused(tmp_path: Path) -> None:
    Site(tmp_path).rows({"a": {}})
    pipeline = Pipeline(Settings(tmp_path / "models.yaml", tmp_path / "cache", tmp_path / "run"))
    nodes = Nodes(pipeline, cluster=None)  # type: ignore[arg-type] - it is not asked
    nodes._write("logs/a.log", b"text")
    assert (tmp_path / "run" / "logs" / "a.log").read_bytes() == b"text"
    for name in ("../a.log", "/tmp/a.log", "logs/../../a.log"):
        with pytest.raises(HarnessError, match="would leave the run directory"):
            nodes._write(name, b"text")
