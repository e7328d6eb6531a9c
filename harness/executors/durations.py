"""How long cases took in earlier runs: what the longest-first order goes by."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

LIMIT = 50_000
"""Cases that are remembered, those of the latest runs first."""


def read_durations(path: Path) -> dict[str, float]:
    """Seconds by case id; empty when the file is missing or damaged, since it only steers an order."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        data = json.loads(path.read_bytes())
        if isinstance(data, dict):
            return {str(name): float(s) for name, s in data.items() if isinstance(s, int | float) and 0 <= s < 1e9}
    return {}


def record_durations(path: Path, seconds: Mapping[str, float]) -> None:
    """Add what a run has measured; other runs may do the same at once. A full disk costs the record alone."""
    with contextlib.suppress(OSError), _alone(path):
        kept = {name: round(s, 2) for name, s in seconds.items()}
        kept |= {name: s for name, s in read_durations(path).items() if name not in kept}
        text = json.dumps(dict(list(kept.items())[:LIMIT]), indent=0)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w") as stream:
                stream.write(text)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
