"""Nouns of the manifest. These types are the schema of models.yaml."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, StringConstraints

from harness.records.axes import Axes, AxesOverride
from harness.records.base import NoResult, Record, Task
from harness.records.expectations import Exclusion, Expectation
from harness.records.inputs import Inputs
from harness.records.limits import Timeouts, Tolerance
from harness.records.sources import Source

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=96)]


class ModelRow(Record):
    """One model of the matrix. A model is a row, never a file of code."""

    task: Task
    """What the model is asked to do."""
    source: Source
    """Where the checkpoint comes from, pinned."""
    licence: str | None = None
    """SPDX identifier or name of the licence of the weights."""
    parameters: Annotated[int, Field(gt=0)] | None = None
    """Number of parameters, or the nominal size, for planning before anything is fetched."""
    family: str | None = None
    """Groups rows in the report, e.g. ``granite``."""
    inputs: Inputs | None = None
    """What to ask; the default of the task otherwise."""
    axes: AxesOverride = AxesOverride()
    """Axes in which this row departs from the manifest's."""
    tolerance: Tolerance | None = None
    """Limits in which this row departs from the rule, with the reason."""
    exclude: tuple[Exclusion, ...] = ()
    """Cases that are planned, shown and not run."""
    expect: tuple[Expectation, ...] = ()
    """Known failures; the first entry that matches a case holds."""
    timeouts: Timeouts | None = None
    """Limits in which this row departs from the defaults."""


class Defaults(Record):
    """What holds for each row that does not say otherwise."""

    inputs: dict[Task, Inputs] = {}
    """What models are asked, by task."""
    tolerance: dict[Task, Tolerance] = {}
    """Departures from the built-in limits of `harness.verdict`, with reason."""
    timeouts: Timeouts = Timeouts()
    """Wall-clock limits per stage."""


class Profile(Record):
    """A named selection of rows with a policy about what may be absent."""

    sources: tuple[Literal["hub", "wheel", "folder"], ...] = ("hub", "wheel", "folder")
    """Rows of these kinds are planned; other rows are not part of the run."""
    axes: AxesOverride = AxesOverride()
    """Of the rows' combinations, those with these values are planned; an axis that is not given: all."""
    check_fit: bool = True
    """Skip what cannot fit this machine's memory (``does_not_fit``) instead of trying it."""
    allow_notrun: tuple[NoResult, ...] = ()
    """Kinds of NOTRUN that do not turn the run red."""


class Manifest(Record):
    """models.yaml, read and checked."""

    version: Literal[1]
    """Version of this file's form."""
    defaults: Defaults = Defaults()
    """What holds for each row that does not say otherwise."""
    axes: Axes = Axes()
    """The dimensions of the matrix; a case per combination."""
    profiles: dict[Name, Profile] = {}
    """Named selections of rows, for ``--profile``."""
    models: Annotated[dict[Name, ModelRow], Field(min_length=1)]
    """The rows, by name. A name is part of the case ids, so renaming a row starts a new history."""

    _file: str = PrivateAttr(default="")
    _lines: dict[tuple[str | int, ...], int] = PrivateAttr(default_factory=dict)

    def located(self, file: str, lines: dict[tuple[str | int, ...], int]) -> Manifest:
        """Return this manifest knowing the line of each of its keys."""
        self._file, self._lines = file, lines
        return self

    def place(self, *path: str | int) -> str:
        """Return ``file:line`` of a key, or its dotted path when the manifest came from no file."""
        if path in self._lines:
            return f"{self._file}:{self._lines[path]}"
        return ".".join(str(part) for part in path)
