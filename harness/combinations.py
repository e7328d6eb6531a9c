"""Runs with other upstream releases than the pinned ones: transformers and torch, older and newest."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness import bisection, environment, manifest, matrix, store, verdict
from harness.errors import UsageError
from harness.records import CaseResult, Outcome, OutcomeKind, Package, Run

WHICH = ("pinned", "previous", "before-previous", "newest")
"""``previous``: the newest patch release of the minor release before the pinned one."""


@dataclass(frozen=True)
class Choice:
    """The release that is meant."""

    version: str | None
    """None: the index has none that would be meant."""
    reason: str = ""
    """Why there is nothing to run with."""
    pinned: bool = False
    """It is the release of this environment."""


def choose(package: str, which: str, versions: Sequence[str], pinned: str, *, cpu_builds: bool = False) -> Choice:
    """Return which release is meant. ``cpu_builds``: take those with the local version ``+cpu`` alone."""
    final = sorted((found, text) for text in versions if (found := _final(text)) is not None)
    now = Version(pinned)
    if which == "pinned":
        return Choice(pinned, pinned=True)
    if which == "newest":
        wanted = final[-1][0] if final else now
    else:
        minors = sorted({found.release[:2] for found, _ in final if found.release[:2] < now.release[:2]}, reverse=True)
        back = WHICH.index(which) - 1
        if back >= len(minors):
            return Choice(None, f"the index has no {which} minor release of {package} before {pinned}")
        wanted = max(found for found, _ in final if found.release[:2] == minors[back])
    if wanted.release == now.release:
        return Choice(pinned, pinned=True)
    builds = [text for found, text in final if found.release == wanted.release and (not cpu_builds or _is_cpu(found))]
    if not builds:
        return Choice(wanted.public, "the index has no CPU build of it for this machine")
    return Choice(builds[-1])


def _final(text: str) -> Version | None:
    try:
        version = Version(text)
    except InvalidVersion:
        return None
    return None if version.is_prerelease else version


def _is_cpu(version: Version) -> bool:
    return (version.local or "").split(".")[0] == "cpu"


def needs_cpu_build(package: str) -> bool:
    """Tell whether the plain build of a package is made for CUDA here: torch on x86-64 Linux, by PyTorch's index."""
    return package == "torch" and sys.platform == "linux" and platform.machine() == "x86_64"


@dataclass(frozen=True)
class Request:
    """What the command line says."""

    manifest: Path
    profile: str | None
    folder: Path
    """Environments are made below it."""
    run_directory: Path
    options: tuple[str, ...] = ()
    """Further options of ``conformance run``."""
    pip_options: tuple[str, ...] = ()
    missing_ok: bool = False
    """A release that cannot be had does not make the exit status 1; NOTRUN is recorded all the same."""


def run(package: str, which: str, request: Request) -> tuple[str, int]:
    """Run a profile with another release; returns what was run, in a sentence, and the run's exit status.

    Where the release cannot be had, the run directory says NOTRUN for each case, with the reason.
    """
    matrix.plan(manifest.load(request.manifest), profile=request.profile)  # what is wrong there costs no installation
    pinned = installed(package)
    listed = bisection.available(package, request.pip_options)
    choice = choose(package, which, listed, pinned, cpu_builds=needs_cpu_build(package))
    if choice.version is None or choice.reason:
        return _not_run(package, choice.version or "none", choice.reason, request)
    if choice.pinned and which != "pinned":
        return f"{package}: {which} is {pinned}, the pinned release: nothing of its own to run", 0
    python = sys.executable
    if not choice.pinned:
        pins = {package: choice.version}
        try:
            layer = bisection.build(request.folder / f"{package}-{choice.version}", pins, request.pip_options)
        except bisection.InstallError as error:
            return _not_run(package, choice.version, f"cannot be installed: {error}", request)
        python = str(layer.python.absolute())
    command = [python, "-m", "harness", "run", "--manifest", str(request.manifest.absolute())]
    command += ["--profile", request.profile] if request.profile else []
    done = subprocess.run([*command, "--run-dir", str(request.run_directory), *request.options], check=False)
    return f"{package} {choice.version} ({which}): {request.run_directory}", done.returncode


def _not_run(package: str, version: str, reason: str, request: Request) -> tuple[str, int]:
    """Write the run of a combination that cannot be had: every case NOTRUN, with the reason."""
    path, now = request.manifest, datetime.now(UTC)
    cases = matrix.plan(manifest.load(path), profile=request.profile)
    here = environment.capture(1, 1)
    packages = tuple(Package(name=one.name, version=version) if one.name == package else one for one in here.packages)
    run = Run(
        run_id=store.run_id_for(request.run_directory, now),
        started=now,
        profile=request.profile,
        manifest_digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        environment=here.model_copy(update={"packages": packages}),
        plan=cases,
    )
    writer = store.RunWriter(request.run_directory, run)
    outcome = Outcome(kind=OutcomeKind.UNAVAILABLE, message=f"{package} {version}: {reason}")
    for case in cases:
        judged = verdict.judge(case, outcome, None, {})
        writer.append(CaseResult(case=case, outcome=outcome, verdict=judged, started=now, finished=now))
    status = 0 if request.missing_ok else 1
    writer.finish(now, status)
    return f"{package} {version}: NOTRUN, {reason}: {request.run_directory}", status


def installed(package: str) -> str:
    """Return the release of this environment. Raises UsageError without one."""
    found = next((one.version for one in environment.packages() if one.name == package), None)
    if found is None:
        raise UsageError(f"--package {package}: is not installed here, so no release of it is the pinned one")
    return found
