"""Time and memory of a night's publish over many runs; prints a line of JSON for each.

    python -m benchmarks.publish --runs 30 300

The first publish reads every run. The second has one run more, as the next night has: what it reads of the
others is what was kept beside them.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import nightly
from harness.store import CASES_FILE, RUN_FILE
from tests.report.synthetic import Spec, runs


def prepare(folder: Path, nights: int, models: int) -> list[Path]:
    """Write run directories of four cases a model, oldest first."""
    found = []
    for night in runs(Spec(models=models, runs=nights)):
        directory = folder / night.run_id
        directory.mkdir(parents=True)
        with (directory / CASES_FILE).open("w") as lines:
            lines.writelines(seen.model_dump_json() + "\n" for seen in night.results)
        (directory / RUN_FILE).write_text(night.run.model_dump_json())
        found.append(directory)
    return found


def publish(directories: list[str], out: Path) -> None:
    """Publish in this process and print what it cost."""
    started, cpu = time.perf_counter(), time.process_time()
    facts = nightly.publish([Path(name) for name in directories], out)
    measured = {
        "runs": facts.runs,
        "cases": facts.cases,
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    sys.stdout.write(json.dumps(measured) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[30, 300])
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--publish", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.publish:
        publish(options.publish[1:], Path(options.publish[0]))
        return
    for nights in options.runs:
        with tempfile.TemporaryDirectory() as name:
            directories = [str(path) for path in prepare(Path(name) / "runs", nights, options.models)]
            for seen in (directories[:-1], directories):
                # A process of its own, so that the peak is its own.
                command = [sys.executable, "-m", "benchmarks.publish", "--publish", f"{name}/site", *seen]
                subprocess.run(command, check=True, cwd=Path(__file__).parent.parent)


if __name__ == "__main__":
    main()
