"""What exactly ran: packages, commits, device, threads. The only stage that asks the machine about itself."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

from harness.records import Environment, Package

PACKAGES = (
    "torch",
    "torch-spyre",
    "transformers",
    "tokenizers",
    "safetensors",
    "huggingface-hub",
    "accelerate",
    "gguf",
    "numpy",
    "pydantic",
    "pytest",
    "spyre-conformance",
)
"""Packages whose version can change a result."""

VARIABLES = (
    "SENCORES",
    "SENARCH",
    "FLEX_DEVICE",
    "SPYRE_EMULATOR_FAULTS",
    "SPYRE_EMULATOR_COVERAGE",
    "SPYRE_EMULATOR_STRICT",
    "SPYRE_EMULATOR_NUMERICS",
    "DXP_LX_FRAC_AVAIL",
    "HBM_POOL_PLANNING",
    "LX_PLANNING",
    "SPYRE_KERNEL_CACHE",
    "TORCH_SPYRE_DOWNCAST_WARN",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "ONEDNN_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "HF_HOME",
)
"""Variables that act on results or on where checkpoints come from. None of them holds a secret."""


def capture(workers: int, threads: int, root: Path | None = None) -> Environment:
    """The environment as it is now. Imports nothing heavy: versions come from package metadata."""
    return Environment(
        python=platform.python_version(),
        platform=platform.platform(),
        machine=platform.machine(),
        cpu=cpu_name(),
        cores=cores(),
        memory=psutil.virtual_memory().total,
        packages=packages(),
        harness_version=_version("spyre-conformance") or "unknown",
        commit=commit(root or Path(__file__).parent),
        device=spyre_device(),
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
        threads_per_case=threads,
        workers=workers,
    )


def packages() -> tuple[Package, ...]:
    """Installed versions of `PACKAGES`."""
    found = ((name, _version(name)) for name in PACKAGES)
    return tuple(Package(name=name, version=version) for name, version in found if version)


def changes(before: Iterable[Package], after: Iterable[Package]) -> str:
    """Packages whose version differs, ``torch 2.13.0 -> 2.14.0``; empty when none does."""
    old, new = ({package.name: package.version for package in packages} for packages in (before, after))
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return ", ".join(f"{name} {old.get(name, 'absent')} -> {new.get(name, 'absent')}" for name in names)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    """The processor's name as the kernel tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "machine", "cpu") and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def cpu_capability() -> str:
    """The vector extensions that CPU kernels choose by: part of a reference's key."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.machine()
    flags: set[str] = set()
    for line in info.read_text().splitlines():
        if line.startswith(("flags", "Features")):
            flags = set(line.partition(":")[2].split())
            break
    relevant = ("avx2", "avx512f", "avx512_fp16", "avx512_bf16", "amx_tile", "asimd", "sve", "vxe2")
    return "+".join([platform.machine(), *(flag for flag in relevant if flag in flags)])


def commit(root: Path) -> str | None:
    """Commit of the working tree around ``root``, ``+dirty`` when it has changes; None outside of one."""
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return None
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{head}+dirty" if changes else head


def spyre_device() -> dict[str, str]:
    """Which stack the target ``spyre`` would use: the real one where it is installed, the emulator otherwise."""
    if importlib.util.find_spec("torch_spyre") is not None:
        return {"kind": "torch_spyre", "version": _version("torch-spyre") or "unknown"}
    return {"kind": "emulator", "version": _version("spyre-conformance") or "unknown"}


def stack_versions(threads: int) -> dict[str, str]:
    """What a stored reference depends on besides checkpoint and inputs."""
    names = ("torch", "transformers", "tokenizers")
    versions = {name: _version(name) or "none" for name in names}
    return {**versions, "threads": str(threads), "cpu": cpu_capability(), "python": f"{sys.version_info[0]}"}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],  # noqa: S607 - the user's git
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
