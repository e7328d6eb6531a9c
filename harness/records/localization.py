"""Nouns of localisation: the error that each module adds by itself, and the first wrong op. Facts only."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from harness.records.base import OpState, Record
from harness.records.comparison import PairNumbers
from harness.records.observation import TensorSpec


class ModuleError(Record):
    """What one stretch of a forward added to the error, given the reference's values at its start."""

    name: str
    """``model.layers.0.mlp.up_proj`` for a module; ``model.layers.0.self_attn (into o_proj)`` for the ops of a
    module between two of its children."""
    module: str
    """Path of the module whose code ran; empty for the model itself."""
    part: Literal["module", "between"]
    """``module``: a module without children, whole. ``between``: a parent's own ops before a child or the end."""
    call: int = 0
    """Which call of the module: 0 for the prefill of a causal language model, 1 for its first decode step."""
    shape: tuple[int, ...] = ()
    relative_l2: float | None = None
    """Of the candidate against the reference; None: undefined, or the values are integers."""
    control: float | None = None
    """Of the control."""
    nonfinite: int = 0
    """Elements where the candidate disagrees with the reference about being finite, beyond the control's."""
    unequal: int | None = None
    """For integers: elements that differ, beyond the control's."""
    dtype: str | None = None
    """For integers: of the reference."""
    mismatch: str | None = None
    """Structural difference; nothing numeric was compared then."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        """Module and part follow from the name where they are not given."""
        if not isinstance(data, dict) or "name" not in data:
            return data
        return {**dict(zip(("module", "part"), _from_name(data["name"]), strict=True)), **data}

    @model_serializer(mode="wrap")
    def _short(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What says nothing is not written: a model has a thousand of these."""
        data: dict[str, Any] = handler(self)
        implied = dict(zip(("module", "part"), _from_name(self.name), strict=True))
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        defaults["shape"] = type(data["shape"])()
        return {name: value for name, value in data.items() if value != implied.get(name, defaults[name])}

    def ratio(self, floor: float) -> float | None:
        """Return the candidate's error in units of the control's and the format's, added in quadrature."""
        if self.relative_l2 is None or self.control is None:
            return None
        return self.relative_l2 / math.hypot(self.control, floor)


def _from_name(name: str) -> tuple[str, str]:
    """Module and part that a stretch's name says; the model itself has a name and no path."""
    module, found, _ = name.partition(" (")
    return module, "between" if found else "module"


class ModuleEvidence(Record):
    """The forward of a case taken apart, in order of execution."""

    errors: tuple[ModuleError, ...] = ()
    forwards: int = 0
    """Forwards that were taken apart: the prefill and each decode step count one."""
    compared: int = 0
    """Tensors compared."""
    skipped: str | None = None
    """Why the model, or the rest of it, was not taken apart."""
    seconds: float = 0.0


class Cause(StrEnum):
    """What kind of thing is wrong where a localisation ends."""

    OP = "op"
    """Wrong for these operands in any layout."""
    LAYOUT = "layout"
    """Wrong for the recorded strides and offset, right for contiguous operands."""
    DTYPE = "dtype"
    """Wrong in the case's dtype, right with float32 operands on the device."""
    FALLBACK = "fallback"
    """Wrong where the device hands the op to the CPU."""
    FUSION = "fusion"
    """Right eager, wrong in a compiled graph."""
    WEIGHTS = "weights"
    """The module's parameters on the device are not those of the checkpoint."""
    UNKNOWN = "unknown"
    """The module is wrong and each of its ops alone is right."""


class OpError(Record):
    """One op execution on the device against the CPU, with the very same operands."""

    op: str
    """Overload name, e.g. ``aten.mm.default``."""
    operands: tuple[TensorSpec, ...] = ()
    offsets: tuple[int, ...] = ()
    """Storage offset of each operand."""
    state: OpState | None = None
    relative_l2: float | None = None
    """Of the device's result against the float32 result."""
    control: float | None = None
    """Of the CPU's result in the operands' own dtype."""
    numbers: PairNumbers | None = None
    error: str | None = None
    """What the device raised instead of a result."""


class Localization(Record):
    """Where a case first goes wrong."""

    case: str
    module: ModuleError | None = None
    """The first stretch whose own error is out of proportion; None when there is none."""
    op: OpError | None = None
    """The first wrong op inside it."""
    cause: Cause | None = None
    parameter: str | None = None
    """For `Cause.WEIGHTS`: the first parameter that differs."""
    sentence: str
    """One sentence for people."""
    modules_wrong: int = 0
    """Stretches out of proportion in all."""
    limit: float
    """Ratio above which an error counted as out of proportion."""
    evidence: ModuleEvidence = ModuleEvidence()
    seconds: float = 0.0
    peak_memory: int | None = None
    """Peak resident bytes of the process that searched."""
