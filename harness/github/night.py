"""A night as issues see it: causes, and what is well again; a job leaves it in a file for the next one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness.errors import StoredDataError, UsageError

FILE = "issues.json"


@dataclass(frozen=True)
class Cause:
    """Cases that got worse tonight for one reason."""

    key: str
    """Stable over nights."""
    kind: str
    """``regressed``, ``drifted`` or ``gone``: what its cases need to be well again."""
    title: str
    cases: Mapping[str, str]
    """Case id -> what became of it, in a sentence."""
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Night:
    """What the issues of one lane are held against."""

    lane: str
    """Host architecture and kind of device: another lane's issues are left alone."""
    run_id: str
    causes: tuple[Cause, ...]
    well: Mapping[str, frozenset[str]]
    """Kind -> cases of which nothing of that kind is left."""
    links: tuple[str, ...] = ()
    """Lines of Markdown: the run, the reproducers, the commands to type. They are not written."""

    def write(self, folder: Path) -> None:
        """Leave it in a folder, for the jobs that come later."""
        tree = asdict(self)
        del tree["links"]
        tree["well"] = {kind: sorted(names) for kind, names in self.well.items()}
        (folder / FILE).write_text(json.dumps(tree, indent=1), encoding="utf-8")


def read_night(folder: Path) -> Night:
    """Return what `Night.write` left in a folder. Raises UsageError for a folder without, or a damaged file."""
    path = folder / FILE
    remedy = "name the folder that `conformance ci merge` wrote"
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file; {remedy}")
    try:
        return TypeAdapter(Night).validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise StoredDataError(f"{path}: {where}{': ' * bool(where)}{problem['msg']}; {remedy}") from None
