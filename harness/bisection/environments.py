"""Isolated environments: this one with a few packages in other releases on top.

A full environment with torch takes minutes and gigabytes, a layer of one package seconds: the layer is a venv
whose ``.pth`` file names this environment's packages, so what is installed in the layer comes first.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from harness.errors import HarnessError, UsageError

INSTALL_SECONDS = 1800.0
"""Longest that one installation may take, a slow index included."""


class InstallError(HarnessError):
    """Releases cannot be installed together: for a search that is an answer, not a fault."""


@dataclass(frozen=True)
class Layer:
    """An environment with packages of its own on top of this one."""

    python: Path
    """Its interpreter."""


def build(folder: Path, pins: Mapping[str, str], pip_options: Sequence[str] = ()) -> Layer:
    """Return a layer with these releases; one that stands complete in the folder is used again.

    Dependencies of the pinned releases that this environment does not satisfy go into the layer as well. The
    index is the one that pip is configured for. Raises InstallError with pip's reason.
    """
    python = folder / "bin" / "python"
    stamp = folder / "complete"
    wanted = "\n".join(f"{name}=={version}" for name, version in sorted(pins.items())) + "\n"
    if stamp.exists() and stamp.read_text() == wanted:
        return Layer(python)
    venv.create(folder, clear=True, symlinks=True, with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    site.mkdir(parents=True, exist_ok=True)
    (site / "_below.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    _install(python, wanted.split(), pip_options)
    _check(python, pins)
    stamp.write_text(wanted)
    return Layer(python)


def _install(python: Path, requirements: Sequence[str], pip_options: Sequence[str]) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", *pip_options, *requirements]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise InstallError(f"{' '.join(requirements)}: pip did not end in {INSTALL_SECONDS:.0f} s") from None
    if done.returncode:
        raise InstallError(f"{' '.join(requirements)}: {_reason(done.stderr)}")


def _reason(stderr: str) -> str:
    """Return the last line in which pip says what is wrong."""
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR")]
    last = (errors or stderr.splitlines() or ["pip gave no reason"])[-1]
    return last.removeprefix("ERROR:").strip()[:400]


def _check(python: Path, pins: Mapping[str, str]) -> None:
    """Make sure that the layer's interpreter sees the releases it was asked for."""
    code = "import sys, importlib.metadata as m; print(*(m.version(name) for name in sys.argv[1:]))"
    names = sorted(pins)
    done = subprocess.run([str(python), "-c", code, *names], capture_output=True, text=True, check=False)
    seen = done.stdout.split()
    wanted = [pins[name] for name in names]
    if done.returncode or seen != wanted:
        raise InstallError(f"installed {' '.join(wanted)}, the environment sees {' '.join(seen) or 'nothing'}")


def releases(package: str, good: str, bad: str, pip_options: Sequence[str] = ()) -> tuple[str, ...]:
    """Return a package's final releases on the index from ``good`` to ``bad``, whichever is newer.

    Raises UsageError when the index does not know the package or one of the two.
    """
    return between(available(package, pip_options), package, good, bad)


def available(package: str, pip_options: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the releases of a package that the index has for this machine, as pip names them.

    Raises UsageError when it has none.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", package, "--disable-pip-version-check"]
    done = subprocess.run([*command, *pip_options], capture_output=True, text=True, timeout=300, check=False)
    found = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if done.returncode or found is None:
        raise UsageError(f"{package}: the package index names no releases: {_reason(done.stderr)}")
    return tuple(text.strip() for text in found[1].split(","))


def between(versions: Sequence[str], package: str, good: str, bad: str) -> tuple[str, ...]:
    """Return the final releases from ``good`` to ``bad``, in order of version, the good end first."""
    known: dict[Version, str] = {}
    for text in versions:
        try:
            version = Version(text)
        except InvalidVersion:
            continue  # nothing that pip would install by default
        if not version.is_prerelease or text in (good, bad):
            known[version] = text
    try:
        start, end = Version(good), Version(bad)
    except InvalidVersion as error:
        raise UsageError(f"{package}: {error}") from None
    for version in (start, end):
        if version not in known:
            raise UsageError(f"{package}: the package index has no release {version}")
    low, high = min(start, end), max(start, end)
    chosen = [known[version] for version in sorted(known) if low <= version <= high]
    return tuple(chosen if start <= end else reversed(chosen))
