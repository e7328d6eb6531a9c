"""Nouns of the manifest and the plan. These types are the schema of models.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from itertools import product
from typing import Annotated, Literal, NamedTuple, TypeVar

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    StringConstraints,
    field_validator,
    model_validator,
)

from harness.records.base import Dtype, Mode, OutcomeKind, Record, Stage, Task
from harness.records.sources import Reason, Source

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=96)]
TargetName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=32)]
Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
Distinct = TypeVar("Distinct")
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
NATURAL = "natural"
"""The shape axis' word for inputs at their own length."""


def _shape_text(text: str) -> str:
    if text != NATURAL and str(Shape.parse(text)) != text:
        raise ValueError(f"shape {text!r} is written {str(Shape.parse(text))!r}")
    return text


def _each_once(values: tuple[Distinct, ...]) -> tuple[Distinct, ...]:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ValueError(f"{value!s} is there twice; keep one")
    return values


Axis = Annotated[
    tuple[Distinct, ...], Field(min_length=1, json_schema_extra={"uniqueItems": True}), AfterValidator(_each_once)
]
"""The values of an axis: at least one, each once."""
ShapeText = Annotated[str, AfterValidator(_shape_text)]
"""``natural``, or ``b<batch>s<sequence>``, for example ``b1s64``."""


class Inputs(Record):
    """What a model is asked. Give texts or token ids, not both."""

    texts: tuple[str, ...] = ()
    """Texts, one per batch row; repeated in turn when the batch is larger. For masked-lm each text
    holds the literal token ``[MASK]``, which stands for the tokenizer's own mask."""
    ids: tuple[tuple[TokenId, ...], ...] = ()
    """Token ids, one sequence per batch row."""
    tokenizer: Literal["auto", "smiles"] = "auto"
    """``auto``: the checkpoint's own. ``smiles``: ``vocab.txt`` split by the reaction SMILES pattern."""
    pooling: Literal["mean", "cls", "checkpoint"] | None = None
    """Embedding only: pool as named, or as the checkpoint's ``1_Pooling/config.json`` says."""
    decode_steps: Annotated[int, Field(ge=0, le=4096)] | None = None
    """Causal language models only: teacher-forced steps through the KV cache after the prefill."""

    @model_validator(mode="after")
    def _one_form(self) -> Inputs:
        if self.texts and self.ids:
            raise ValueError("give 'texts' or 'ids', not both")
        if not all(self.ids) or not all(text.strip() for text in self.texts):
            raise ValueError("an empty text or sequence asks nothing; remove it or fill it in")
        return self

    def over(self, default: Inputs) -> Inputs:
        """Return these inputs with what they leave open taken from ``default``."""
        own = self if self.texts or self.ids else default
        return Inputs(
            texts=own.texts,
            ids=own.ids,
            tokenizer=own.tokenizer,
            pooling=self.pooling or default.pooling,
            decode_steps=default.decode_steps if self.decode_steps is None else self.decode_steps,
        )


class Tolerance(Record):
    """Limits of the verdict rule, for one task and dtype. `harness.verdict` gives them meaning."""

    error_ratio: Limit | None = None
    """Largest relative L2 error of the candidate, in units of the control's."""
    typical_ratio: Limit | None = None
    """The same vector by vector (a step's logits, a token's embedding): largest geometric mean."""
    module_ratio: Limit | None = None
    """Largest typical ratio of a module that ran under the reference's inputs."""
    relative_l2: Limit | None = None
    """Absolute guard: largest relative L2 error, whatever the control does."""
    vector_l2: Limit | None = None
    """Absolute guard: largest relative L2 error of a single vector, such as the logits of one step."""
    cosine: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    """Absolute guard: smallest cosine similarity with the reference."""
    kl: Limit | None = None
    """Logits: largest mean Kullback-Leibler divergence from the reference, in nats."""
    token_disagreement: Share | None = None
    """Logits: largest share of positions whose top token differs and is no near tie."""
    reason: Reason | None = None
    """Why this row departs from the defaults. A pass that needed it is flagged ``relaxed``."""

    def over(self, default: Tolerance) -> Tolerance:
        """Return these limits with unset ones taken from ``default``; both reasons are kept."""
        unset = {name: value for name, value in default if getattr(self, name) is None}
        merged = self.model_copy(update=unset)
        if self.reason and default.reason and default.reason != self.reason:
            return merged.model_copy(update={"reason": f"{default.reason}; {self.reason}"})
        return merged

    @property
    def limits(self) -> tuple[str, ...]:
        """Names of the limits that are set."""
        return tuple(name for name, value in self if name != "reason" and value is not None)


class Cell(NamedTuple):
    """One combination of the axes."""

    target: str
    mode: Mode
    dtype: Dtype
    shape: str
    """``natural`` or ``b<batch>s<sequence>``."""


class Selector(Record):
    """Which of a model's cases an entry speaks of. An empty field means any."""

    target: TargetName | None = None
    """Only cases on this target."""
    mode: Mode | None = None
    """Only cases in this mode."""
    dtype: Dtype | None = None
    """Only cases in this dtype."""
    shape: ShapeText | None = None
    """Only cases of this shape, ``natural`` or ``b<batch>s<sequence>``."""

    def matches(self, cell: Cell) -> bool:
        """Tell whether the entry speaks of this combination."""
        wanted = (self.target, self.mode, self.dtype, self.shape)
        return all(want is None or want == have for want, have in zip(wanted, cell, strict=True))


EXPECTABLE = (
    OutcomeKind.UNSUPPORTED_OP,
    OutcomeKind.COMPILE_ERROR,
    OutcomeKind.RUNTIME_ERROR,
    OutcomeKind.DEVICE_ERROR,
    OutcomeKind.HOST_OUT_OF_MEMORY,
    OutcomeKind.DEVICE_OUT_OF_MEMORY,
    OutcomeKind.TIMEOUT,
    OutcomeKind.CRASH,
    OutcomeKind.KILLED,
)
"""Outcomes that say something about the device. The others say that a check proves nothing, or that
nothing ran, and no expectation may hide that."""


class Exclusion(Selector):
    """Cases that are not run, decided before running."""

    reason: Reason
    """Why; it is shown beside each skipped case."""


class Expectation(Selector):
    """A known failure. Strict: a pass, or a failure of another kind, contradicts it."""

    outcome: OutcomeKind | Literal["outside_rule"] = Field(json_schema_extra={"enum": ["outside_rule", *EXPECTABLE]})
    """What is expected: the outcome's kind, or ``outside_rule`` for completed with wrong numbers."""
    reason: Reason
    """What is known of the defect, for those who read the report."""
    issue: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")] | None = None
    """Link to the report of the defect."""
    expires: date | None = None
    """From this day on the entry is an error, so that known failures are looked at again."""

    @field_validator("outcome")
    @classmethod
    def _about_the_device(cls, outcome: OutcomeKind | str) -> OutcomeKind | str:
        if isinstance(outcome, OutcomeKind) and outcome not in EXPECTABLE:
            raise ValueError(
                f"outcome '{outcome}' cannot be expected: it says nothing about the device; "
                f"expect 'outside_rule' or one of {', '.join(EXPECTABLE)}"
            )
        return outcome


class Axes(Record):
    """The dimensions of the matrix; a case per combination."""

    target: Axis[TargetName] = ("spyre",)
    """Where the candidate runs: ``spyre``, ``cpu``, or another torch device."""
    mode: Axis[Mode] = (Mode.EAGER, Mode.COMPILED)
    """``eager``: op by op; ``compiled``: through ``torch.compile``."""
    dtype: Axis[Dtype] = (Dtype.FLOAT16,)
    """Format of the candidate's and the control's weights. The reference is always float32."""
    shape: Axis[ShapeText] = (NATURAL,)
    """``natural`` (the inputs at their own length) or ``b<batch>s<sequence>``, for example ``b1s64``."""

    def cells(self) -> Iterator[Cell]:
        """Yield each combination, in the order in which the axes are written."""
        for target, mode, dtype, shape in product(self.target, self.mode, self.dtype, self.shape):
            yield Cell(target, mode, dtype, shape)


class AxesOverride(Record):
    """A row's own axes; what is not given comes from the manifest's axes."""

    target: Axis[TargetName] | None = None
    """Where the candidate runs: ``spyre``, ``cpu``, or another torch device."""
    mode: Axis[Mode] | None = None
    """``eager``: op by op; ``compiled``: through ``torch.compile``."""
    dtype: Axis[Dtype] | None = None
    """Format of the candidate's and the control's weights. The reference is always float32."""
    shape: Axis[ShapeText] | None = None
    """``natural`` (the inputs at their own length) or ``b<batch>s<sequence>``, for example ``b1s64``."""

    def over(self, axes: Axes) -> Axes:
        """Return the manifest's axes with this row's in their place."""
        own = {name: value for name, value in self if value is not None}
        return axes.model_copy(update=own)


class Shape(Record):
    """Batch and sequence length of a case."""

    batch: Annotated[int, Field(ge=1, le=65536)]
    sequence: Annotated[int, Field(ge=1, le=1 << 20)]

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read ``b1s64``. Raises ValueError with the form expected."""
        batch, found, sequence = text.removeprefix("b").partition("s")
        if not (text.startswith("b") and found and batch.isdecimal() and sequence.isdecimal()):
            raise ValueError(f"shape {text!r} is neither 'natural' nor 'b<batch>s<sequence>', e.g. 'b1s64'")
        return cls(batch=int(batch), sequence=int(sequence))

    def __str__(self) -> str:
        return f"b{self.batch}s{self.sequence}"


class Timeouts(Record):
    """Wall-clock limits of one isolated process, in seconds per stage, for one thread per case."""

    resolve: Limit = 1800
    """Bringing the checkpoint, download included."""
    load: Limit = 300
    """Reading the weights into a model."""
    place: Limit = 300
    """Moving the model to the target."""
    compile: Limit = 900
    """``torch.compile`` and its first call."""
    run: Limit = 900
    """The forward passes."""
    compare: Limit = 300
    """Computing the numbers."""


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
    check_fit: bool = True
    """Skip what cannot fit this machine's memory (``does_not_fit``) instead of trying it."""
    allow_notrun: tuple[OutcomeKind, ...] = ()
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


class Case(Record):
    """One cell of the matrix: a model asked one thing on one target."""

    id: str
    """``<model>/<task>/<target>-<mode>-<dtype>[-<shape>]``: stable, unique, safe in a URL."""
    model: str
    task: Task
    target: str
    mode: Mode
    dtype: Dtype
    shape: Shape | None = None
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
