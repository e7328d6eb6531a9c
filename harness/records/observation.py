"""Nouns of execution: what was loaded, what ran, how it ended. Facts only."""

from __future__ import annotations

from pydantic import Field

from harness.records.base import Dtype, Mode, OpState, OutcomeKind, Record, Role, Stage


class FileFact(Record):
    """One file of a checkpoint as it was verified."""

    name: str
    size: int
    """Bytes."""
    sha256: str


class Checkpoint(Record):
    """A verified local folder with weights, config and tokenizer."""

    folder: str
    """Local path. Never shown in reports: `origin` is."""
    origin: str
    """Where it came from, pinned: ``hub:org/name@sha``, ``wheel:name==version/path``, ``folder:name``."""
    revision: str | None = None
    """Commit of a hub checkpoint; the wheel's sha256; None for a folder."""
    format: str
    """``safetensors`` or ``pickle``."""
    stored_dtype: str | None = None
    """Dtype of the stored weights, the most common one where they differ."""
    architecture: str | None = None
    """First entry of the config's ``architectures``."""
    model_type: str | None = None
    parameters: int | None = None
    files: tuple[FileFact, ...] = ()
    digest: str
    """sha256 over names and hashes of all files: the key under which references are kept."""
    allow_pickle: bool = False
    allow_remote_code: bool = False


class Outcome(Record):
    """What happened at the last stage reached."""

    kind: OutcomeKind
    stage: Stage | None = None
    message: str = ""
    """One sentence: the thing, the place, where known the remedy."""
    detail: str = ""
    """Traceback or log tail, cut to a bounded size."""
    signal: str | None = None
    """Name of the signal that ended the process, e.g. ``SIGSEGV``."""
    exit_code: int | None = None


class TensorSpec(Record):
    """Geometry of one tensor operand."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class OpUse(Record):
    """One op variant (op x shapes x strides x dtypes) and how often it ran."""

    op: str
    """Overload name, e.g. ``aten.mm.default``."""
    state: OpState
    count: int
    operands: tuple[TensorSpec, ...] = ()
    relative_l2: float | None = None
    """Error of the variant run alone against the CPU in float32, where it was checked; see `checked`."""
    control: float | None = None
    """The same for the CPU in the operands' dtype."""
    checked: bool = False
    """Whether the variant was run alone, with the operands that the model first gave it."""
    error: str | None = None
    """What the device raised when the variant ran alone."""


class CompileFacts(Record):
    """What ``torch.compile`` did."""

    graphs: int = 0
    graph_breaks: int = 0
    recompiles: int = 0
    plan_steps: int = 0
    native_steps: int = 0
    fallback_steps: int = 0
    view_steps: int = 0
    padded_bytes: int = 0
    """Padding lanes of computed values."""
    restickifies: int = 0
    restickified_bytes: int = 0
    """Device memory read and written to rearrange operands."""
    scratchpad_buffers: int = 0
    """Intermediates that stay on the cores."""
    pool_buffers: int = 0
    """Intermediates in the pool of device memory."""
    pool_peak: int = 0
    """Bytes of the pool in use at once, in the plan that uses most."""
    working_set: int = 0
    """Bytes per core of the operator that uses most."""
    spilling_steps: int = 0
    """Operators whose operands and result together exceed a core's scratchpad."""
    estimated_seconds: float = 0.0
    """Device time for one run of each plan: a roofline estimate, never a measurement."""
    seconds: float = 0.0
    """Spent compiling."""


class DeviceUse(Record):
    """Whether and how the device was exercised."""

    ops_on_device: int = 0
    """Executed op calls on the device, views and copies not counted."""
    fallbacks: int = 0
    """Executed op calls that ran on the CPU instead."""
    ops: tuple[OpUse, ...] = ()
    compiled: CompileFacts | None = None
    peak_memory: int | None = None
    """Device bytes at the peak."""
    configuration: dict[str, str] = {}
    """Device or emulator settings that act on results; faults that were switched on among them."""
    replaced: dict[str, str] | None = None
    """The case's adapter: ops that the device ran in an equivalent form, each with its kind, ``decomposed`` or
    ``custom``. None where the device does not tell."""

    @property
    def device_share(self) -> float | None:
        """Share of op calls that ran on the device; None when nothing ran."""
        total = self.ops_on_device + self.fallbacks
        return self.ops_on_device / total if total else None


class Observation(Record):
    """One role's execution of a case's workload."""

    role: Role
    target: str
    dtype: Dtype
    mode: Mode
    threads: int
    weights_digest: str
    """Fingerprint of the loaded weights: equal on both sides before anything is compared."""
    outputs: dict[str, TensorSpec] = {}
    """Named outputs as they came back to the host."""
    seconds: dict[Stage, float] = {}
    peak_memory: int | None = None
    """Peak resident bytes of the process that made it."""
    device: DeviceUse | None = None
    """For candidates."""
    drills: tuple[str, ...] = ()
    """Faults injected on purpose. An observation made with one says so."""
    cached: bool = False
    """True when a stored reference or control was used again."""
    unstable: tuple[str, ...] = ()
    """Outputs that had other bits at a second run in the same process; compiled candidates run twice."""
    notes: tuple[str, ...] = Field(default=())
