"""The results of one night as this report, as pytest-html and as an Allure report: prints a Markdown table.

    python -m benchmarks.report_peers --cases 1000 4000 10000 40000 --allure node_modules/.bin/allure

Each reporter gets the cases' status, sentence and traceback; with evidence also the record that a model's page
is drawn from, 9 kB a case. A reporter's time is that of a pytest session with it less that of one without; this
report's includes reading cases.jsonl. pytest-html 4 and allure-pytest have to be importable, Chromium on PATH.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report_peers.browser import Opened, opened
from benchmarks.report_peers.process import Spent, spent
from harness.records import CaseResult
from harness.report.details import case_text
from tests.report.synthetic import Spec, runs

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONFIGURATIONS = 4
SELECTORS = {"ours": "#matrix tbody tr", "pytest-html": ".results-table-row", "allure": "[data-testid=tree-leaf]"}
"""What is on the screen when the first view shows cases."""


@dataclass(frozen=True)
class Figures:
    """One reporter at one size."""

    cases: int
    form: str
    tool: str
    spent: Spent
    megabytes: float
    files: int
    opened: Opened

    def line(self) -> str:
        """A row of the table."""
        cells = [f"{self.cases:,}", self.form, self.tool, f"{self.spent.cpu:.0f} s", f"{self.spent.wall:.0f} s"]
        cells += [f"{self.spent.peak / 1e6:,.0f} MB", f"{self.megabytes:,.1f} MB", f"{self.files:,}"]
        return f"| {' | '.join([*cells, *self.opened.cells()])} |"


HEAD = """\
| Cases | With | Report | CPU time | Wall time | Peak memory | Size | Files | First view | Read before it | JS heap |
|---|---|---|---|---|---|---|---|---|---|---|"""


def prepare(folder: Path, cases: int) -> None:
    """Write one night as the store does, and as `replay` reads it, with and without evidence."""
    (night,) = runs(Spec(models=-(-cases // CONFIGURATIONS), runs=1))
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(night.run.model_dump_json())
    with (
        (folder / "cases.jsonl").open("w") as lines,
        (folder / "verdicts.jsonl").open("w") as short,
        (folder / "evidence.jsonl").open("w") as long,
    ):
        for seen in night.results:
            lines.write(seen.model_dump_json() + "\n")
            one = replayed(seen)
            short.write(json.dumps(one) + "\n")
            long.write(json.dumps({**one, "record": case_text(seen)}) + "\n")


def replayed(seen: CaseResult) -> dict[str, str]:
    """What any reporter of test results can be given of a case."""
    return {
        "id": seen.case.id,
        "status": seen.verdict.status.value,
        "sentence": seen.verdict.sentence,
        "detail": seen.outcome.detail,
    }


def ours(inputs: Path, out: Path, limit: float) -> Spent:
    """This report, from the run's files."""
    command = ["benchmarks/report_scale.py", "--inputs", str(inputs), "--out", str(out)]
    return spent([sys.executable, *command], limit, ROOT, {})


def pytest(replay: Path, limit: float, *options: str) -> Spent:
    """A session that ends each test as the case ended."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        "/dev/null",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:warnings",
        "-r",
        "N",
    ]
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "REPLAY": str(replay)}
    command += ["--rootdir", str(HERE), "--tb=no", *options, str(HERE / "replay.py")]
    return spent(command, limit, replay.parent, variables, allowed=(0, 1))


def pytest_html(replay: Path, out: Path, limit: float, bare: Spent) -> Spent:
    """pytest-html's one file."""
    plugins = ("pytest_metadata.plugin", "pytest_html.plugin", "pytest_html.fixtures")
    options = [option for name in plugins for option in ("-p", name)]
    session = pytest(replay, limit, *options, "--self-contained-html", f"--html={out / 'index.html'}")
    return session.agreeing(bare).without(bare)


def allure(replay: Path, out: Path, limit: float, bare: Spent, command: Path) -> Spent:
    """allure-pytest's results, then the site that the command line makes of them."""
    with tempfile.TemporaryDirectory(dir=out.parent) as results:
        options = ["-p", "allure_pytest.plugin", f"--alluredir={results}"]
        session = pytest(replay, limit, *options)
        site = spent([str(command), "generate", results, "-o", str(out)], limit, out.parent, {})
        return session.agreeing(bare).without(bare).then(site)


def measured(cases: int, work: Path, command: Path, limit: float) -> Iterator[Figures]:
    """All reporters at one size."""
    inputs = work / f"night-{cases}"
    if not inputs.exists():
        prepare(inputs, cases)
    yield _figures(cases, "all", "ours", work / "ours", ours(inputs, work / "ours", limit))
    for form in ("verdicts", "evidence"):
        replay = inputs / f"{form}.jsonl"
        bare = pytest(replay, limit)
        html, site = work / f"html-{form}", work / f"allure-{form}"
        html.mkdir(exist_ok=True)
        yield _figures(cases, form, "pytest-html", html, pytest_html(replay, html, limit, bare))
        yield _figures(cases, form, "allure", site, allure(replay, site, limit, bare, command))


def _figures(cases: int, form: str, tool: str, site: Path, cost: Spent) -> Figures:
    files = [path for path in site.rglob("*") if path.is_file()] if site.is_dir() and cost.ended else []
    seen = opened(site, SELECTORS[tool]) if files else Opened()
    size = sum(path.stat().st_size for path in files)
    return Figures(cases, form, tool, cost, size / 1e6, len(files), seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, nargs="+", default=[1000, 4000, 10_000, 40_000])
    parser.add_argument("--allure", type=Path, required=True, help="The command of the npm package `allure`.")
    parser.add_argument("--limit", type=float, default=1200, help="Seconds that a reporter may take.")
    parser.add_argument("--work", type=Path, help="Where nights and sites are left to look at.")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp())
    sys.stdout.write(HEAD + "\n")
    for cases in options.cases:
        place = work / str(cases)
        place.mkdir(parents=True, exist_ok=True)
        for figures in measured(cases, place, options.allure.resolve(), options.limit):
            sys.stdout.write(figures.line() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
