"""What history and the report keep of a run, stored beside it: a night reads it instead of hundreds of runs.

The file holds four lines: a head, the report's digest, history's view, and what had changed in the run against
those before it. It counts only while it is whole and the run's files are those that it was made from; anything
else is made anew. Nothing depends on it: it may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from harness import history, report, store
from harness.history.kept import VERSION as VIEW_VERSION
from harness.records import Change
from harness.report import ReportRun, RunDigest
from harness.report.digest import VERSION as DIGEST_VERSION
from harness.store import StoredRun

FILE = "condensed.jsonl"
FORM = [1, DIGEST_VERSION, VIEW_VERSION]
"""Versions of the order of the lines and of what is in them."""
Stamp = dict[str, list[Any]]
"""Name of a file to its size, the time of its last change in ns, and its sha256."""


@dataclass
class Condensed:
    """A run in four lines; each is parsed when it is asked for."""

    directory: Path
    head: dict[str, Any]
    digest_text: str
    view_text: str
    changes_text: str = "{}"

    @property
    def run_id(self) -> str:
        """The run's id; sorts by time."""
        return str(self.head["run_id"])

    @cached_property
    def started(self) -> datetime:
        """When the run began."""
        return datetime.fromisoformat(self.head["started"])

    @property
    def lane(self) -> str:
        """Host architecture and kind of device."""
        return str(self.head["lane"])

    @property
    def digest(self) -> RunDigest:
        """The run in columns."""
        found = RunDigest.parse(self.digest_text)
        assert found is not None, "`kept` refuses what another version wrote"
        return found

    @cached_property
    def view(self) -> history.RunView:
        """The run as history sees it."""
        found = history.parse(self.view_text)
        assert found is not None, "`kept` refuses what another version wrote"
        return found

    def changes(self, before: Sequence[Condensed]) -> list[Change]:
        """Return what changed in the run against those before it. Where these differ, all is stored anew."""
        against = _sum(*(one.head["view"] for one in (*before, self)))
        tree = json.loads(self.changes_text)
        if tree.get("against") != against:
            found = history.changes([one.view for one in before], self.view)
            tree = {"against": against, "changes": [change.model_dump(mode="json") for change in found]}
            self.changes_text = json.dumps(tree)
            self.keep()
        return [Change.model_validate(change) for change in tree["changes"]]

    def keep(self) -> None:
        """Store it beside a run that has ended. Where a folder cannot be written to, the run is read again."""
        if not self.head["finished"]:
            return
        lines = [self.digest_text, self.view_text, self.changes_text]
        head = json.dumps({**self.head, "sum": _sum(*lines)})
        try:
            store.write_atomically(self.directory / FILE, "\n".join([head, *lines, ""]).encode())
        except OSError:
            return


def condense(directory: Path) -> tuple[Condensed, StoredRun]:
    """Return a run condensed, and as it was read. Raises what `store.read_run` raises."""
    stamp = _stamp(directory)
    stored = store.read_run(directory)
    view = history.view(stored.run, stored.results)
    digest = report.digest(ReportRun(run=stored.run, results=stored.results, problems=stored.problems))
    text = history.dump(view)
    head = {
        "form": FORM,
        "files": stamp,
        "run_id": view.run_id,
        "started": view.started.isoformat(),
        "lane": view.lane,
        "finished": view.finished,
        "view": _sum(text),
    }
    return Condensed(directory, head, digest.dump(), text), stored


def kept(directory: Path) -> Condensed | None:
    """Return what is stored beside a run; None when it is missing, damaged, or of other files than are there."""
    try:
        head_text, *lines = (directory / FILE).read_text("utf-8").split("\n")
        head = json.loads(head_text)
        if head["form"] != FORM or head.pop("sum") != _sum(*lines[:3]) or lines[3:] != [""]:
            return None
        stamp = _stamp(directory, head["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if _contents(stamp) != _contents(head["files"]):
        return None
    return Condensed(directory, head, *lines[:3])


def _stamp(directory: Path, known: Stamp | None = None) -> Stamp:
    """Return what tells the run's files from others. Of one whose size and time are known the hash is too."""
    stamp = {}
    for name in (store.RUN_FILE, store.CASES_FILE):
        path = directory / name
        if not path.is_file():
            continue
        status = path.stat()
        at = [status.st_size, status.st_mtime_ns]
        before = (known or {}).get(name)
        stamp[name] = before if before and before[:2] == at else [*at, _hash(path)]
    return stamp


def _contents(stamp: Stamp) -> dict[str, Any]:
    """The hashes alone: a copied run has other times and is the same run."""
    return {name: facts[2] for name, facts in stamp.items()}


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sum(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
