"""What is installed and usable here, and what to mend: the command ``conformance env``."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from harness import environment
from harness.checkpoints.scrub import scrub
from harness.options import default_cache
from harness.records import Record

SMOKE_DISK = 3 << 30
"""Bytes that the smoke profile's wheels, conversions and references take, with room to spare."""
SMOKE_MEMORY = 4 << 30


class Finding(Record):
    """One thing that a run needs."""

    name: str
    usable: bool
    text: str
    """What was found; where it is not usable, what to do."""


def examine() -> tuple[Finding, ...]:
    """Look at everything that a run needs. Imports neither torch nor transformers, opens no model."""
    return (*_packages(), _device(), _kernel(), _hub(), _cache(), _machine())


def _packages() -> list[Finding]:
    found = {package.name: package.version for package in environment.packages()}
    needed = ("torch", "transformers", "huggingface-hub", "safetensors")
    return [
        Finding(name=name, usable=name in found, text=found.get(name, f"not installed: pip install {name}"))
        for name in needed
    ]


def _device() -> Finding:
    device = environment.spyre_device()
    return Finding(name="spyre", usable=True, text=f"{device['kind']} {device['version']}")


def _kernel() -> Finding:
    spec = importlib.util.find_spec("spyre_emulator._dlfloat16")
    text = "C rounding kernel" if spec else "pure torch rounding (slower; install a C compiler and reinstall)"
    return Finding(name="rounding", usable=True, text=text)


def _hub() -> Finding:
    """Whether the Hub answers. A run without it still has its wheel and folder rows."""
    if os.environ.get("HF_HUB_OFFLINE", "") in ("1", "ON", "YES", "TRUE"):
        return Finding(name="hub", usable=True, text="offline by HF_HUB_OFFLINE; hub rows need a warm cache")
    written = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        endpoint = urlsplit(written)
        host, port = endpoint.hostname or "", endpoint.port or (443 if endpoint.scheme == "https" else 80)
    except ValueError as error:
        return Finding(
            name="hub", usable=False, text=f"HF_ENDPOINT is {scrub(written)!r}: {error}; set it to a URL or unset it"
        )
    try:
        with socket.create_connection((host, port), timeout=3):
            return Finding(name="hub", usable=True, text=f"{host} answers")
    except OSError:
        text = f"{host} does not answer: hub rows will be NOTRUN; the profile smoke does not need it"
        return Finding(name="hub", usable=True, text=text)


def _cache() -> Finding:
    path = default_cache()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if not existing.is_dir():
        return Finding(name="cache", usable=False, text=f"{existing} is no folder; set CONFORMANCE_CACHE to one")
    writable = os.access(existing, os.W_OK)
    if not writable:
        return Finding(name="cache", usable=False, text=f"{path} is not writable; set CONFORMANCE_CACHE")
    usable = free > SMOKE_DISK
    advice = "" if usable else f"; the smoke profile needs {SMOKE_DISK >> 30} GiB: free space or set CONFORMANCE_CACHE"
    return Finding(name="cache", usable=usable, text=f"{path}, {free / 2**30:.1f} GiB free{advice}")


def _machine() -> Finding:
    available = psutil.virtual_memory().available
    text = f"{environment.cores()} cores, {available / 2**30:.1f} GiB of memory available, {Path.cwd()}"
    return Finding(name="machine", usable=available > SMOKE_MEMORY, text=text)
