"""Nouns of the plan: what is run, and what is broken on purpose."""

from __future__ import annotations

from typing import Literal

from harness.records.axes import NATURAL, Shape, variant
from harness.records.base import Check, Dtype, Mode, Record, Stage, Task
from harness.records.expectations import Expectation
from harness.records.inputs import Inputs
from harness.records.limits import Timeouts, Tolerance
from harness.records.sources import Source


class Case(Record):
    """One cell of the matrix: a model asked one thing on one target."""

    id: str
    """``<model>/<task>/<target>-<mode>-<dtype>[-<shape>][-<check>]``: stable, unique, safe in a URL."""
    model: str
    task: Task
    target: str
    mode: Mode
    dtype: Dtype
    shape: Shape | None = None
    check: Check = Check.OUTPUTS
    source: Source
    inputs: Inputs
    tolerance: Tolerance = Tolerance()
    """The row's and the defaults' limits merged; unset fields take the rule's own defaults."""
    expectation: Expectation | None = None
    expectation_at: str | None = None
    """Place of the expectation in the manifest, ``models.yaml:88``: the line to remove on a pass."""
    excluded: str | None = None
    """Reason of an exclusion: the case is planned, skipped and shown."""
    timeouts: Timeouts = Timeouts()
    parameters: int | None = None
    family: str | None = None
    licence: str | None = None

    @property
    def variant(self) -> str:
        """The end of the id, shape and check: empty for outputs at the inputs' own length."""
        return variant(str(self.shape) if self.shape else NATURAL, self.check)


class Drill(Record):
    """A fault injected on purpose, to prove that the harness can fail."""

    case: str
    """Glob over case ids; ``probe/<target>`` is the process that asks a device whether it is alive."""
    stage: Stage
    """Injected as this stage begins."""
    action: Literal[
        "exit",
        "segfault",
        "abort",
        "kill",
        "hang",
        "spin",
        "grandchild",
        "allocate",
        "flood",
        "raise",
        "device_error",
        "device_memory",
        "host_memory",
        "disk",
        "connect",
        "scale",
        "cpu",
    ]
    argument: str = ""
    """``scale``: ``<parameter name>*<factor>``. ``exit``: the exit status. ``allocate``, ``flood``: bytes.
    ``grandchild``: a lock file. ``connect``: ``<host>/<port>``. Of those that raise: the text."""
    attempts: int | None = None
    """Injected in the first so many attempts at a case; None: in each."""

    def __str__(self) -> str:
        text = f"{self.case}:{self.stage}:{self.action}"
        text += f"={self.argument}" if self.argument else ""
        return text if self.attempts is None else f"{text}@{self.attempts}"
