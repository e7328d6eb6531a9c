"""Time and memory of a report of many models and runs; prints one line of JSON.

    python benchmarks/report_scale.py --models 10000 --runs 30 --out /tmp/site

The newest run is read from a cases.jsonl as the store writes it; earlier runs are digests, as after a first report.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from harness.records import CaseResult, Run
from harness.report import ReportRun, RunDigest, digest, render
from tests.report.synthetic import Spec, runs


class Lines:
    """The results of a cases.jsonl, read as they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[CaseResult]:
        with self.path.open("rb") as lines:
            for line in lines:
                yield CaseResult.model_validate_json(line)


def prepare(folder: Path, models: int, nights: int) -> None:
    """Write the inputs: the newest run, and a digest of one night under the names of all earlier ones."""
    *old, newest = runs(Spec(models=models, runs=nights))
    with (folder / "cases.jsonl").open("w") as lines:
        lines.writelines(seen.model_dump_json() + "\n" for seen in newest.results)
    (folder / "run.json").write_text(newest.run.model_dump_json())
    if old:
        one = json.loads(digest(old[0]).dump())
        for night in old:
            named = {**one, "run_id": night.run_id, "started": night.run.started.isoformat()}
            (folder / f"{night.run_id}.digest").write_text(json.dumps(named))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--inputs", type=Path, help="Folder of inputs, kept and used again.")
    options = parser.parse_args()
    inputs = options.inputs or Path(tempfile.mkdtemp())
    if not (inputs / "run.json").exists():
        inputs.mkdir(parents=True, exist_ok=True)
        prepare(inputs, options.models, options.runs)
        # A process of its own measures: preparing takes more memory than the report.
        sys.stderr.write(f"inputs are in {inputs}; run again with --inputs {inputs}\n")
        return
    started, cpu = time.perf_counter(), time.process_time()
    old = [RunDigest.parse(path.read_text()) for path in sorted(inputs.glob("*.digest"))]
    run = Run.model_validate_json((inputs / "run.json").read_bytes())
    kept = [one for one in old if one is not None]
    facts = render([*kept, ReportRun(run=run, results=Lines(inputs / "cases.jsonl"))], options.out)
    measured = {
        "models": facts.models,
        "cases": facts.cases,
        "runs": facts.runs,
        "seconds": round(time.perf_counter() - started, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "site_mb": round(facts.bytes / 1e6),
        "first_view_mb": round(first_view(options.out) / 1e6, 2),
    }
    sys.stdout.write(json.dumps(measured) + "\n")


def first_view(site: Path) -> int:
    """Bytes that a browser reads before the first click on the overview."""
    scripts = ("theme", "core", "query", "matrix", "overview", "start")
    names = ["index.html", "data/site.js", "data/matrix.js", "assets/tokens.css", "assets/report.css"]
    names += [f"assets/{name}.js" for name in scripts]
    fonts = (site / "assets" / "vendor" / "plex").glob("*.woff2")
    return sum((site / name).stat().st_size for name in names) + sum(path.stat().st_size for path in fonts)


if __name__ == "__main__":
    main()
