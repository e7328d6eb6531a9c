# ruff: noqa: T201 - the report is what it prints
"""What the controller costs per case: memory and time with 10,000 planned cases of a trivial workload.

    python benchmarks/controller.py [--cases 10000]

A run of a tenth of the cases is taken off, so that what is paid once (interpreter, pytest) does not count.
Then a run is killed in the middle and resumed. Everything is real but the cases' processes: planning, pytest,
scheduler, judgement, a flushed line per case, tables, summary. Targets: 10 KB and 5 ms per case; a resumed run
repeats at most the cases in flight.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SHAPES = 20


def main() -> None:
    """Measure, and print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="controller-") as folder:
        root = Path(folder)
        few = measure(root, options.cases // 10, "few")
        many = measure(root, options.cases, "many")
        more = options.cases - options.cases // 10
        memory = (many["peak"] - few["peak"]) / more / 1000
        seconds = (many["seconds"] - few["seconds"]) / more
        print(f"{options.cases} cases: {many['seconds']:.1f} s, peak {many['peak'] / 1e6:.0f} MB, exit {many['exit']}")
        used = (many["cpu"] - few["cpu"]) / more
        print(
            f"per case: {memory:.1f} KB (at most 10), {seconds * 1000:.2f} ms (at most 5), {used * 1000:.2f} ms of CPU"
        )
        kept, repeated, exit_status = kill_and_resume(root, options.cases)
        print(f"killed after {kept} results, resumed: {repeated} repeated, exit {exit_status}")


def measure(root: Path, cases: int, name: str) -> dict[str, float]:
    """Run so many cases; peak resident bytes and seconds of the controller."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command(root, cases, name), cwd=root, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode != 0:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = float(done.stderr.rsplit("peak ", 1)[1])
    return {"seconds": seconds, "cpu": cpu, "peak": peak, "exit": done.returncode}


def kill_and_resume(root: Path, cases: int) -> tuple[int, int, int]:
    """Kill a run when half of its results are stored; how many were kept, and how many were run twice."""
    lines = root / "killed" / "cases.jsonl"
    process = subprocess.Popen(
        command(root, cases, "killed"), cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not lines.exists() or lines.read_bytes().count(b"\n") < cases // 2:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = lines.read_bytes().count(b"\n")
    resumed = subprocess.run([*command(root, cases, "killed"), "--resume"], cwd=root, capture_output=True, check=False)
    total = lines.read_bytes().count(b"\n")
    return kept, total - cases, resumed.returncode


def command(root: Path, cases: int, name: str) -> list[str]:
    """A run of so many cases by this file's other half."""
    manifest = root / f"{cases}.yaml"
    if not manifest.exists():
        manifest.write_text(json.dumps(matrix_of(cases)))
    run = [
        "--manifest",
        str(manifest),
        "--run-dir",
        str(root / name),
        "--cache",
        str(root / "cache"),
        "-q",
        "--workers",
        "2",
    ]
    return [sys.executable, __file__, "--inside", "run", *run]


def matrix_of(cases: int) -> dict[str, Any]:
    """A manifest of 20 shapes of so many models."""
    row = {"task": "causal-lm", "source": {"folder": "nowhere"}, "parameters": 1000}
    axes = {"target": ["cpu"], "mode": ["eager"], "dtype": ["float16"], "shape": [f"b1s{n + 1}" for n in range(SHAPES)]}
    inputs = {"causal-lm": {"texts": ["a text"]}}
    models = {f"model-{n:05}": row for n in range(cases // SHAPES)}
    return {"version": 1, "defaults": {"inputs": inputs}, "axes": axes, "models": models}


def inside() -> None:
    """The command line with a workload that answers at once; tells its peak memory on stderr."""
    from harness import cli, pipeline
    from harness.records import (
        Case,
        CaseResult,
        Comparison,
        DeviceUse,
        Observation,
        OpState,
        OpUse,
        Outcome,
        OutcomeKind,
        OutputComparison,
        PairNumbers,
        Role,
        TensorSpec,
    )

    operand = TensorSpec(shape=(64, 64), strides=(64, 1), dtype="float16")
    ops = tuple(
        OpUse(op=f"aten.op{n}.default", state=OpState.SPYRE_ENABLED, count=n + 1, operands=(operand,))
        for n in range(20)
    )
    numbers = PairNumbers(finite_pairs=64, max_abs=1e-4, relative_l2=1e-4, worst_vector_l2=1e-4, cosine=1.0)
    output = OutputComparison(
        name="logits", shape=(64,), elements=64, candidate=numbers, control=numbers, typical_ratio=1.0, worst_ratio=1.0
    )

    def observe(case: Case, role: Role) -> Observation:
        device = DeviceUse(ops_on_device=210, ops=ops) if role is Role.CANDIDATE else None
        return Observation(
            role=role,
            target="cpu",
            dtype=case.dtype,
            mode=case.mode,
            threads=1,
            weights_digest="ab" * 32,
            device=device,
        )

    def run_case(self: pipeline.Pipeline, case: Case) -> CaseResult:
        now = datetime.now(UTC)
        progress = pipeline.Progress(case, now)
        progress.observations = {role: observe(case, role) for role in Role}
        progress.comparison = Comparison(outputs=(output,))
        return self._judge(progress, Outcome(kind=OutcomeKind.COMPLETED))

    pipeline.Pipeline.run_case = run_case  # type: ignore[method-assign]
    sys.argv = ["conformance", *sys.argv[2:]]
    try:
        cli.main()
    finally:
        sys.stderr.write(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}")


if __name__ == "__main__":
    inside() if "--inside" in sys.argv else main()
