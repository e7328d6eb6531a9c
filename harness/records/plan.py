"""Nouns of the manifest and the plan. These types are the schema of models.yaml."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from harness.records.base import Dtype, Mode, OutcomeKind, Record, Task

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=96)]
Reason = Annotated[str, StringConstraints(min_length=8, strip_whitespace=True)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", strict=True)]
CommitSha = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$", strict=True)]


class HubSource(Record):
    """A repository on the Hugging Face Hub at one commit."""

    hub: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$", max_length=200)]
    """Repository id, ``organisation/name``."""
    revision: CommitSha
    """The commit: 40 hexadecimal digits, quoted. A branch may move, so none is accepted."""
    allow_pickle: Reason | None = None
    """Why ``pytorch_model.bin`` may be read (with ``weights_only``). Without it: safetensors only."""
    allow_remote_code: Reason | None = None
    """Why the repository's own Python code may run, at the pinned commit."""


class WheelSource(Record):
    """A checkpoint that ships inside a package on the package index."""

    wheel: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*==[\w.!+]+$")]
    """``name==version`` as pip understands it."""
    path: Annotated[str, StringConstraints(min_length=1)]
    """The checkpoint inside the wheel: a folder, or a file for a converter."""
    sha256: Sha256
    """Hash of the wheel file."""
    converter: Literal["gguf"] | None = None
    """Turns what lies at ``path`` into an ordinary checkpoint, once, in the cache."""
    allow_pickle: Reason | None = None
    """Why ``pytorch_model.bin`` may be read (with ``weights_only``). Without it: safetensors only."""


class FolderSource(Record):
    """A checkpoint in a local directory."""

    folder: Annotated[str, StringConstraints(min_length=1)]
    """Absolute, or relative to the manifest's directory."""
    allow_pickle: Reason | None = None
    """Why ``pytorch_model.bin`` may be read (with ``weights_only``). Without it: safetensors only."""


Source = HubSource | WheelSource | FolderSource


class Inputs(Record):
    """What a model is asked. Give texts or token ids, not both."""

    texts: tuple[str, ...] = ()
    """Texts, one per batch row; repeated in turn when the batch is larger."""
    ids: tuple[tuple[int, ...], ...] = ()
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
        return self


class Tolerance(Record):
    """Limits of the verdict rule, for one task and dtype. `harness.verdict` gives them meaning."""

    error_ratio: Annotated[float, Field(gt=0)] | None = None
    """Largest relative L2 error of the candidate, in units of the control's."""
    relative_l2: Annotated[float, Field(gt=0)] | None = None
    """Absolute guard: largest relative L2 error, whatever the control does."""
    cosine: Annotated[float, Field(gt=0, le=1)] | None = None
    """Absolute guard: smallest cosine similarity with the reference."""
    kl: Annotated[float, Field(gt=0)] | None = None
    """Logits: largest mean Kullback-Leibler divergence from the reference, in nats."""
    token_disagreement: Annotated[float, Field(ge=0, le=1)] | None = None
    """Logits: largest share of positions whose top token differs and is no near tie."""
    reason: Reason | None = None
    """Why this row departs from the defaults. A pass that needed it is flagged ``relaxed``."""


class Selector(Record):
    """Which of a model's cases an entry speaks of. An empty field means any."""

    target: str | None = None
    mode: Mode | None = None
    dtype: Dtype | None = None
    shape: str | None = None


class Exclusion(Selector):
    """Cases that are not run, decided before running."""

    reason: Reason


class Expectation(Selector):
    """A known failure. Strict: a pass, or a failure of another kind, contradicts it."""

    outcome: OutcomeKind | Literal["outside_rule"]
    """What is expected: the outcome's kind, or ``outside_rule`` for completed with wrong numbers."""
    reason: Reason
    issue: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")] | None = None
    """Link to the report of the defect."""
    expires: date | None = None
    """From this day on the entry is an error, so that known failures are looked at again."""


class Axes(Record):
    """The dimensions of the matrix; a case per combination."""

    target: tuple[str, ...] = ("spyre",)
    mode: tuple[Mode, ...] = (Mode.EAGER, Mode.COMPILED)
    dtype: tuple[Dtype, ...] = (Dtype.FLOAT16,)
    shape: tuple[str, ...] = ()
    """``b<batch>s<sequence>``, for example ``b1s64``; empty: the inputs at their own length."""

    @model_validator(mode="after")
    def _shapes_parse(self) -> Axes:
        for text in self.shape:
            Shape.parse(text)
        return self


class AxesOverride(Record):
    """A row's own axes; what is not given comes from the defaults."""

    target: tuple[str, ...] | None = None
    mode: tuple[Mode, ...] | None = None
    dtype: tuple[Dtype, ...] | None = None
    shape: tuple[str, ...] | None = None


class Shape(Record):
    """Batch and sequence length of a case."""

    batch: Annotated[int, Field(ge=1, le=65536)]
    sequence: Annotated[int, Field(ge=1, le=1 << 20)]

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read ``b1s64``. Raises ValueError with the form expected."""
        batch, found, sequence = text.removeprefix("b").partition("s")
        if not (text.startswith("b") and found and batch.isdecimal() and sequence.isdecimal()):
            raise ValueError(f"shape {text!r} is not of the form 'b<batch>s<sequence>', e.g. 'b1s64'")
        return cls(batch=int(batch), sequence=int(sequence))

    def __str__(self) -> str:
        return f"b{self.batch}s{self.sequence}"


class Timeouts(Record):
    """Wall-clock limits of one isolated process, in seconds per stage, for one thread per case."""

    resolve: Annotated[float, Field(gt=0)] = 1800
    load: Annotated[float, Field(gt=0)] = 300
    place: Annotated[float, Field(gt=0)] = 300
    compile: Annotated[float, Field(gt=0)] = 900
    run: Annotated[float, Field(gt=0)] = 900
    compare: Annotated[float, Field(gt=0)] = 300


class ModelRow(Record):
    """One model of the matrix. A model is a row, never a file of code."""

    task: Task
    source: Source
    licence: str | None = None
    """SPDX identifier or name of the licence of the weights."""
    parameters: Annotated[int, Field(gt=0)] | None = None
    """Number of parameters, for planning before anything is fetched."""
    family: str | None = None
    """Groups rows in the report, e.g. ``granite``."""
    inputs: Inputs | None = None
    """What to ask; the default of the task otherwise."""
    axes: AxesOverride = AxesOverride()
    tolerance: Tolerance | None = None
    exclude: tuple[Exclusion, ...] = ()
    expect: tuple[Expectation, ...] = ()
    timeouts: Timeouts | None = None


class Defaults(Record):
    """What holds for each row that does not say otherwise."""

    inputs: dict[Task, Inputs] = {}
    tolerance: dict[Task, Tolerance] = {}
    """Departures from the built-in limits of `harness.verdict`, with reason."""
    timeouts: Timeouts = Timeouts()


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
    defaults: Defaults = Defaults()
    axes: Axes = Axes()
    profiles: dict[Name, Profile] = {}
    models: dict[Name, ModelRow]


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
    excluded: str | None = None
    """Reason of an exclusion: the case is planned, skipped and shown."""
    timeouts: Timeouts = Timeouts()
    parameters: int | None = None
    family: str | None = None
    licence: str | None = None
