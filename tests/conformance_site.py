"""A place to run ``conformance`` in: a manifest of tiny trained checkpoints, a cache, run directories."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.records import CaseResult
from harness.store import StoredRun, read_run

LLAMA = Path(__file__).parent / "fixtures" / "llama-licence"
TEXT = "Licensed under the Apache License, Version 2.0 (the License); you may not use this file except in"

# One thread each: on a machine with few cores, several processes of several threads are many times slower.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
PATIENCE = 3600.0
"""Seconds for what takes some ten on a machine with nothing else to do: a net under a test, never what it measures."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As shells start what goes to the background. A run that is started from here would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Finished:
    """A ``conformance run`` that ended."""

    def __init__(self, site: Site, name: str, process: subprocess.CompletedProcess[str]) -> None:
        self.directory = site.path / name
        self.exit_status = process.returncode
        self.output = process.stdout
        self.errors = process.stderr

    @property
    def stored(self) -> StoredRun:
        return read_run(self.directory)

    @property
    def results(self) -> dict[str, CaseResult]:
        """By model, or by case id where a model has several cases."""
        every = self.stored.results
        models = [result.case.model for result in every]
        return {r.case.model if models.count(r.case.model) == 1 else r.case.id: r for r in every}

    @property
    def told(self) -> dict[str, str]:
        """Status, kind and stage of each result: ``FAIL crash run``."""
        return {
            name: " ".join(str(word) for word in (r.verdict.status, r.outcome.kind, r.outcome.stage) if word)
            for name, r in self.results.items()
        }


class Site:
    """A directory with models.yaml; every run shares the cache."""

    def __init__(self, path: Path, cache: Path | None = None, environ: dict[str, str] | None = None) -> None:
        self.path = path
        self.cache = cache or path / "cache"
        self.environ = {**os.environ, **ENVIRONMENT, **(environ or {})}

    def rows(self, rows: dict[str, dict[str, Any]], **rest: Any) -> Site:
        """Write the manifest. Each row is the tiny Llama on target spyre, eager, but for what it says."""
        common = {"task": "causal-lm", "source": {"folder": str(LLAMA)}, "parameters": 461_000}
        data = {
            "version": 1,
            "defaults": {"inputs": {"causal-lm": {"texts": [TEXT], "decode_steps": 2}}},
            "axes": {"target": ["spyre"], "mode": ["eager"], "dtype": ["float16"]},
            **rest,
            "models": {name: {**common, **row} for name, row in rows.items()},
        }
        (self.path / "models.yaml").write_text(json.dumps(data, indent=1))  # JSON is YAML
        return self

    def command(self, name: str, *arguments: str) -> list[str]:
        directory = ["--run-dir", str(self.path / name), "--cache", str(self.cache)]
        return [sys.executable, "-m", "harness", "run", *directory, *arguments]

    def run(self, name: str, *arguments: str, timeout: float = PATIENCE) -> Finished:
        """``conformance run`` in a process of its own, to its end."""
        process = subprocess.run(
            self.command(name, *arguments),
            cwd=self.path,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Finished(self, name, process)

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """A ``conformance run`` that goes on, in a process group of its own."""
        return subprocess.Popen(
            self.command(name, *arguments),
            cwd=self.path,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finish(self, name: str, process: subprocess.Popen[str], timeout: float = PATIENCE) -> Finished:
        """Wait for a started run."""
        try:
            output, _ = process.communicate(timeout=timeout)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return Finished(self, name, subprocess.CompletedProcess(process.args, process.returncode, output, ""))

    def wait_for_results(self, name: str, count: int, timeout: float = PATIENCE) -> None:
        """Until so many results are stored."""
        path = self.path / name / "cases.jsonl"
        deadline = time.monotonic() + timeout
        while not path.exists() or path.read_bytes().count(b"\n") < count:
            assert time.monotonic() < deadline, f"{path}: fewer than {count} results after {timeout} s"
            time.sleep(0.02)


def lines_with(text: str, part: str) -> list[str]:
    """The lines of a text that hold a part."""
    return [line for line in text.splitlines() if part in line]
