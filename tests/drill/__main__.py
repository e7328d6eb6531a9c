"""The fault drill: breaks things on purpose and shows that each fault is told for what it is.

    python -m tests.drill [--json FILE] [NAME...]

Prints fault, expected outcome, observed outcome and time against its bound; exits 1 unless all are right.
Bounds hold for a machine with nothing else to do; they are stretched by how much slower the machine was
meanwhile, which is measured. What a fault leads to depends on no speed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.checkpoints.loopback_hub import Hub
from tests.conformance_site import Finished, Site
from tests.drill import faults, runs
from tests.drill.faults import PASS, Fault, copy_of_llama
from tests.drill.slowness import Slowness

HEALTHY = {
    "healthy-cpu": {},
    "healthy-eager": {"axes": {"target": ["spyre"]}},
    "healthy-compiled": {"axes": {"target": ["spyre"], "mode": ["compiled"]}},
}
OPTIONS = ("--workers", "2", "--memory", "3", "--stall", "12", "--localize", "0")


@dataclass(frozen=True)
class Line:
    """One fault as it was seen."""

    what: str
    expected: str
    observed: str
    seconds: float
    within: float
    wrong: str | None = None

    @property
    def right(self) -> bool:
        return self.observed == self.expected and self.seconds <= self.within and self.wrong is None


def main(arguments: list[str]) -> int:
    """Carry the drill out; 0 when every line is right."""
    parser = argparse.ArgumentParser("python -m tests.drill")
    parser.add_argument("names", nargs="*", help="names of faults of cases, parts of names of faults of runs")
    parser.add_argument("--json", type=Path, help="write the table there")
    options = parser.parse_args(arguments)
    names: list[str] = options.names
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="drill-") as folder, Slowness() as slowness:
        root = Path(folder)
        lines = _cases(root, names, slowness) if _chosen(names) else []
        lines += _runs(root, names, slowness)
    _print(lines, time.monotonic() - began)
    if options.json:
        table = [{**asdict(line), "right": line.right} for line in lines]
        options.json.write_text(json.dumps(table, indent=1))
    return 0 if lines and all(line.right for line in lines) else 1


def _chosen(names: list[str]) -> list[Fault]:
    return [fault for fault in faults.every() if not names or fault.name in names]


def _cases(root: Path, names: list[str], slowness: Slowness) -> list[Line]:
    """Every fault of a case in one run, beside healthy cases; those alone in a run before."""
    with Hub() as hub:
        environ = {"HF_ENDPOINT": hub.url, "HF_HOME": str(root / "hf"), "HF_HUB_OFFLINE": "0"}
        site = Site(root, environ=environ | {"HF_HUB_DOWNLOAD_TIMEOUT": "10", "HF_TOKEN": ""})
        axes = {"target": ["cpu"], "mode": ["eager"], "dtype": ["float16"]}
        alone = site.rows(HEALTHY, axes=axes).run("alone", *OPTIONS)
        chosen = _chosen(names)
        rows = {fault.name: _row(fault, root, hub) for fault in chosen}
        drills = [word for fault in chosen if fault.drill for word in ("--drill", _drill(fault, root))]
        site.rows(HEALTHY | rows, axes=axes)
        finished = site.run("faults", *OPTIONS, *drills, timeout=14_400)
    lines = [_line(fault, finished, root, slowness) for fault in chosen]
    return [*lines, *_unchanged(alone, finished), _complete(finished, chosen)]


def _row(fault: Fault, root: Path, hub: Hub) -> dict[str, object]:
    row = dict(fault.row)
    if fault.folder is not None:
        folder = copy_of_llama(root / "checkpoints" / fault.name)
        fault.folder(folder)
        row["source"] = {"folder": str(folder)}
    if fault.hub is not None:
        repository = f"acme/{fault.name}"
        folder = copy_of_llama(root / "checkpoints" / fault.name)
        row["source"] = {"hub": repository, "revision": hub.add(repository, folder, **fault.access)}
        fault.hub(hub, repository)
    return row


def _drill(fault: Fault, root: Path) -> str:
    prefix, _, drill = str(fault.drill).rpartition("|")
    return f"{prefix}{fault.name}/*:{drill.format(drill=root)}"


def _line(fault: Fault, finished: Finished, root: Path, slowness: Slowness) -> Line:
    result = finished.results.get(fault.name)
    if result is None:
        return Line(fault.what, fault.expected, "no result", 0, fault.within)
    told = finished.told[fault.name]
    wrong = fault.check(result, root) if fault.check and told == fault.expected else None
    if told != fault.expected:
        wrong = result.verdict.sentence
    began, ended = result.started.timestamp(), result.finished.timestamp()
    within = fault.within * slowness.between(began, ended)
    return Line(f"{fault.name}: {fault.what}", fault.expected, told, ended - began, within, wrong)


def _unchanged(alone: Finished, finished: Finished) -> list[Line]:
    """The healthy cases' numbers, to the last bit, with and without the faults beside them."""
    lines = []
    for name in HEALTHY:
        before, after = alone.results[name], finished.results.get(name)
        same = after is not None and after.comparison == before.comparison
        told = f"{finished.told.get(name)}, {'same numbers' if same else 'other numbers'}"
        lines.append(Line(f"{name}: nothing, beside all these", f"{PASS}, same numbers", told, 0, 1))
    return lines


def _complete(finished: Finished, chosen: list[Fault]) -> Line:
    stored = finished.stored
    told = f"{len(stored.missing)} missing, {len(stored.problems)} problems, exit {finished.exit_status}"
    statuses = {fault.expected.partition(" ")[0] for fault in chosen}
    status = 3 if "ERROR" in statuses else 1 if statuses - {"PASS"} else 0
    wrong = None if finished.exit_status == status else finished.output[-1500:] + finished.errors[-1500:]
    return Line("the run as a whole", f"0 missing, 0 problems, exit {status}", told, 0, 1, wrong)


def _runs(root: Path, names: list[str], slowness: Slowness) -> list[Line]:
    chosen = [s for s in runs.every() if not names or any(name in s.what for name in names)]

    def play(number: int) -> Line:
        scenario = chosen[number]
        folder = root / f"run-{number}"
        folder.mkdir()
        began = time.time()
        try:
            told = scenario.play(Site(folder))
        except (AssertionError, OSError, ValueError, LookupError, psutil.Error, subprocess.SubprocessError) as error:
            told = f"{type(error).__name__}: {error}"
        ended = time.time()
        within = scenario.within * slowness.between(began, ended)
        return Line(scenario.what, scenario.expected, told, ended - began, within)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(play, range(len(chosen))))


def _print(lines: list[Line], seconds: float) -> None:
    for line in lines:
        mark = "ok   " if line.right else "WRONG"
        told = line.observed if line.observed == line.expected else f"{line.observed}   (expected: {line.expected})"
        print(f"{mark} {line.seconds:6.1f} s of {line.within:4.0f}  {line.what:<76.76}  {told}")
        if line.wrong:
            print(f"        {line.wrong}")
    right = sum(line.right for line in lines)
    print(f"{right} of {len(lines)} right, {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
