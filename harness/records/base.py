"""What every record has in common: frozen, typed, strict about unknown keys."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen noun that one stage hands to the next.

    Written as strict JSON: NaN and infinities become the strings ``"NaN"``, ``"Infinity"`` and
    ``"-Infinity"`` and are read back as numbers. A field that is ``None`` is *undefined* (a cosine
    with a zero vector, say), which is a value of its own and never a number.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_inf_nan="strings",
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )


class Stage(StrEnum):
    """How far a case came; a dead process still tells its stage."""

    RESOLVE = "resolve"
    LOAD = "load"
    PLACE = "place"
    COMPILE = "compile"
    RUN = "run"
    COMPARE = "compare"


class Task(StrEnum):
    """What is asked of a model; the words of the Hugging Face pipelines, with dashes."""

    CAUSAL_LM = "causal-lm"
    EMBEDDING = "embedding"
    MASKED_LM = "masked-lm"
    SEQUENCE_CLASSIFICATION = "sequence-classification"


class Check(StrEnum):
    """What is checked of a model's outputs, each in a case of its own."""

    OUTPUTS = "outputs"
    """Its outputs for the row's inputs."""
    SAMPLING = "sampling"
    """Besides: tokens drawn from its logits, against the reference's probabilities."""
    BATCH_INVARIANCE = "batch-invariance"
    """Rows of one length in a batch and each alone."""
    BLOCK_BOUNDARIES = "block-boundaries"
    """Prompts around the 64 elements of a stick: 1, 63, 64, 65 and 128 tokens."""
    LEFT_PADDING = "left-padding"
    """Rows of several lengths, padded on the left, and each alone without padding."""

    @property
    def sets_shape(self) -> bool:
        """Whether the check decides itself about batch and lengths."""
        return self not in (Check.OUTPUTS, Check.SAMPLING)


class Mode(StrEnum):
    """How the candidate executes: op by op, or through ``torch.compile``."""

    EAGER = "eager"
    COMPILED = "compiled"


class Dtype(StrEnum):
    """Floating point formats that a case can ask for, by their torch names."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class Role(StrEnum):
    """Which of the three observations: the oracle, the cost of the precision, the device under test."""

    REFERENCE = "reference"
    CONTROL = "control"
    CANDIDATE = "candidate"


class OutcomeKind(StrEnum):
    """A fact about the last stage of a case. The judgement is `Status`."""

    COMPLETED = "completed"
    UNSUPPORTED_OP = "unsupported_op"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    DEVICE_ERROR = "device_error"
    HOST_OUT_OF_MEMORY = "host_out_of_memory"
    DEVICE_OUT_OF_MEMORY = "device_out_of_memory"
    TIMEOUT = "timeout"
    CRASH = "crash"
    KILLED = "killed"
    INVALID_CHECKPOINT = "invalid_checkpoint"
    INVALID_REFERENCE = "invalid_reference"
    NONDETERMINISTIC = "nondeterministic"
    NOT_EXERCISED = "not_exercised"
    NOTHING_COMPARED = "nothing_compared"
    HARNESS_FAULT = "harness_fault"
    UNAVAILABLE = "unavailable"
    GATED = "gated"
    CANCELLED = "cancelled"
    LOST_WORKER = "lost_worker"
    DOES_NOT_FIT = "does_not_fit"
    UNSUPPORTED_ARCHITECTURE = "unsupported_architecture"
    EXCLUDED = "excluded"


NoResult = Literal[OutcomeKind.UNAVAILABLE, OutcomeKind.GATED, OutcomeKind.CANCELLED, OutcomeKind.LOST_WORKER]
"""The kinds of NOTRUN: no other may be allowed to be absent."""
NO_RESULT: frozenset[OutcomeKind] = frozenset(get_args(NoResult))
"""Outcomes from which nothing is learnt about the case: a resumed run tries it again, and of two shards'
results the other one holds."""


class Status(StrEnum):
    """The judgement of a case; `harness.verdict` alone assigns it."""

    PASS = "PASS"  # noqa: S105
    FAIL = "FAIL"
    XFAIL = "XFAIL"
    XPASS = "XPASS"
    SKIP = "SKIP"
    ERROR = "ERROR"
    NOTRUN = "NOTRUN"


class OpState(StrEnum):
    """How the device treats an op; the states of torch-spyre RFC 2834."""

    SPYRE_ENABLED = "spyre_enabled"
    CPU_FALLBACK = "cpu_fallback"
    SPYRE_FAILED = "spyre_failed"
    NOT_IMPLEMENTED = "not_implemented"
