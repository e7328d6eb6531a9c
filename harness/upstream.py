"""The command ``conformance bisect``: which upstream release changed a case, asked in environments of their own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import bisection, manifest, matrix, store
from harness.bisection import Answer, Axis, Finding, InstallError, Journal, Layer, Reading, Survey
from harness.errors import HarnessError, UsageError
from harness.history.views import raw_error
from harness.records import Case, CaseResult, Status

GOOD = {Status.PASS, Status.XFAIL, Status.XPASS}
"""A case that passes, or fails as it is known to; the opposite of FAIL. Other statuses prove nothing."""
CANNOT_TELL = 125
"""Exit status by which a probe command says so, as for ``git bisect run``."""


@dataclass(frozen=True)
class Request:
    """What the command line says."""

    manifest: Path
    out: Path
    """Journal, environments and run directories."""
    pip_options: tuple[str, ...] = ()
    probe: str | None = None
    """A command instead of the case's run: exit 0 good, 125 cannot tell, anything else bad."""
    above: float | None = None
    """Bad is a relative L2 error above this, whatever the verdict says."""
    seconds: float = 3600.0
    """Longest that one run may take."""
    checks: int = 1
    """Releases that are asked on each side of the answer, to see whether the history is in order."""


@dataclass(frozen=True)
class Bisection:
    """The end of a search, with what was asked."""

    finding: Finding
    surveys: tuple[Survey, ...]

    def json(self) -> str:
        """The answer for programs."""
        return json.dumps({"finding": asdict(self.finding), "surveys": [asdict(one) for one in self.surveys]}, indent=1)

    def text(self) -> str:
        """The answer for people: each release and what it did, then what was found."""
        lines = [
            f"  {one.package} {name}: {reading or 'not asked'}"
            for one in self.surveys
            for name, reading in one.readings
        ]
        label = "found" if self.finding.culprits else self.finding.kind
        lines += [f"{label}: {self.finding.sentence}"]
        return "\n".join([*lines, *(one.sentence for one in self.surveys)])


def bisect(
    name: str, packages: Sequence[tuple[str, str, str]], request: Request, say: Callable[[str], None]
) -> Bisection:
    """Return which release changed a case. ``packages`` are (package, good version, bad version).

    Interrupted, it goes on where it stopped. Environments go when it has ended; the journal stays.
    """
    probe = _probe(name, request, say)
    axes = [
        Axis(package, bisection.releases(package, good, bad, request.pip_options)) for package, good, bad in packages
    ]
    ends = ", ".join(f"{axis.package} {axis.versions[0]} to {axis.versions[-1]}" for axis in axes)
    for axis in axes:
        say(f"{axis.package}: {len(axis.versions)} releases from {axis.versions[0]} to {axis.versions[-1]}")
    how = request.probe or ("verdict" if request.above is None else f"error above {request.above}")
    journal = Journal(request.out / "journal.jsonl", f"{name}: {ends}, by {how}")
    if journal.answers:
        say(f"{len(journal.answers)} combinations are in the journal")
    finding = bisection.bisect(axes, probe, journal)
    by_package = {axis.package: axis for axis in axes}
    surveys = tuple(
        bisection.survey(by_package[culprit.package], culprit, probe, journal, request.checks)
        for culprit in finding.culprits
    )
    shutil.rmtree(request.out / "environments", ignore_errors=True)
    return Bisection(finding, surveys)


def _probe(name: str, request: Request, say: Callable[[str], None]) -> bisection.Probe:
    """Return what asks one combination: an environment, then the case's run or the user's command in it."""
    case = None if request.probe else find(name, request.manifest)

    def ask(pins: Mapping[str, str]) -> Answer:
        told = " ".join(f"{package}=={version}" for package, version in sorted(pins.items()))
        try:
            layer = bisection.build(request.out / "environments" / matrix.slug(told), pins, request.pip_options)
        except InstallError as error:
            answer = Answer(Reading.UNTESTABLE, str(error))
        else:
            answer = ask_command(layer, request) if case is None else _case(layer, case, told, request)
        say(f"{told}: {answer.reading}{': ' * bool(answer.detail)}{answer.detail}")
        return answer

    return ask


def find(name: str, manifest_path: Path) -> Case:
    """Return the manifest's case of an id. Raises UsageError without one."""
    for case in matrix.plan(manifest.load(manifest_path)):
        if case.id == name:
            return case
    raise UsageError(f"{manifest_path} has no case {name}; see `conformance list`")


def ask_command(layer: Layer, request: Request) -> Answer:
    """Return what the user's command says, with the layer's ``python`` first on PATH."""
    words = shlex.split(request.probe or "")
    done = _run(layer, words, request.seconds)
    if done is None:
        return Answer(Reading.UNTESTABLE, f"no end in {request.seconds:.0f} s")
    detail = f"exit {done.returncode}"
    if done.returncode == CANNOT_TELL:
        return Answer(Reading.UNTESTABLE, detail)
    return Answer(Reading.BAD if done.returncode else Reading.GOOD, detail)


def _case(layer: Layer, case: Case, told: str, request: Request) -> Answer:
    directory = _fresh(request.out / "runs" / matrix.slug(told))
    done = _run(layer, run_command(layer, request.manifest, directory, *selecting(case)), request.seconds)
    if done is None:
        return Answer(Reading.UNTESTABLE, f"no end in {request.seconds:.0f} s")
    try:
        results = store.read_run(directory).results
    except HarnessError:
        return Answer(Reading.UNTESTABLE, _last_line(done.stdout) or f"exit {done.returncode} and no run")
    result = next((one for one in results if one.case.id == case.id), None)
    if result is None:
        return Answer(Reading.UNTESTABLE, _last_line(done.stdout) or "no result")
    return read(result, request.above)


def read(result: CaseResult, above: float | None = None) -> Answer:
    """Return what a result says: good, bad, or nothing about the release."""
    status, sentence = result.verdict.status, result.verdict.sentence
    if status not in GOOD and status is not Status.FAIL:
        return Answer(Reading.UNTESTABLE, f"{status}: {sentence}")
    error = raw_error(result.comparison) if result.comparison else None
    detail = f"{status}, error {'none' if error is None else f'{error:.6g}'}"
    if above is not None and status in GOOD:
        if error is None:
            return Answer(Reading.UNTESTABLE, f"{detail}: nothing was compared")
        return Answer(Reading.BAD if error > above else Reading.GOOD, detail)
    return Answer(Reading.GOOD if status in GOOD else Reading.BAD, detail)


def selecting(case: Case) -> tuple[str, ...]:
    """Return the options of ``conformance run`` that select a case alone."""
    return ("--model", case.model, "-k", f"[{case.id}]")


def run_command(layer: Layer, manifest_path: Path, directory: Path, *options: str) -> list[str]:
    """Return the command of a run in a layer."""
    command = [str(layer.python), "-m", "harness", "run", "--manifest", str(manifest_path.absolute())]
    return [*command, "--run-dir", str(directory.absolute()), *options]


def _run(layer: Layer, command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    """Run a command in a layer; None when it did not end in time."""
    path = os.pathsep.join([str(layer.python.parent.absolute()), os.environ.get("PATH", os.defpath)])
    try:
        return subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            env={**os.environ, "PATH": path},
        )
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be started: {error.strerror}") from None


def _fresh(directory: Path) -> Path:
    """Return the first name for a run directory that is free: a release can be asked several times."""
    number = 1
    while (numbered := directory.with_name(f"{directory.name}-{number}")).exists():
        number += 1
    return numbered


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
