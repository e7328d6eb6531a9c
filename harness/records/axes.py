"""Nouns of the matrix' dimensions: an axis, one combination of them, and entries that speak of some."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated, NamedTuple, TypeVar

from pydantic import AfterValidator, Field, StringConstraints

from harness.records.base import Check, Dtype, Mode, Record

TargetName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=32)]
Distinct = TypeVar("Distinct")
NATURAL = "natural"
"""The shape axis' word for inputs at their own length."""


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


class Cell(NamedTuple):
    """One combination of the axes."""

    target: str
    mode: Mode
    dtype: Dtype
    shape: str
    """``natural`` or ``b<batch>s<sequence>``."""
    check: Check = Check.OUTPUTS


def variant(shape: str, check: Check) -> str:
    """Return how shape and check show in a case id: ``b1s64``, ``b1s64-sampling``; empty for neither."""
    return "-".join((*([] if shape == NATURAL else [shape]), *([] if check is Check.OUTPUTS else [check])))


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
    check: Check | None = None
    """Only cases of this check."""

    def matches(self, cell: Cell) -> bool:
        """Tell whether the entry speaks of this combination."""
        wanted = (self.target, self.mode, self.dtype, self.shape, self.check)
        return all(want is None or want == have for want, have in zip(wanted, cell, strict=True))


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
    check: Axis[Check] = (Check.OUTPUTS,)
    """What is checked besides: ``outputs`` for nothing more; see docs/checks.md."""

    def cells(self) -> Iterator[Cell]:
        """Yield each combination, in the order in which the axes are written.

        Checks that set the shape themselves have the natural one only.
        """
        for cell in product(self.target, self.mode, self.dtype, self.shape, self.check):
            found = Cell(*cell)
            if found.shape == NATURAL or not found.check.sets_shape:
                yield found


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
    check: Axis[Check] | None = None
    """What is checked besides: ``outputs`` for nothing more; see docs/checks.md."""

    def over(self, axes: Axes) -> Axes:
        """Return the manifest's axes with this row's in their place."""
        own = {name: value for name, value in self if value is not None}
        return axes.model_copy(update=own)

    def has(self, cell: Cell) -> bool:
        """Tell whether a combination has only values that are given here; what is not given allows any."""
        return all(allowed is None or getattr(cell, name) in allowed for name, allowed in self)
