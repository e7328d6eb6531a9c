"""A published figure, how the emulator's counterpart is measured, and how the two are judged."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Literal

Value = float | str
Rule = Literal["exact", "within", "at most", "at least"]
Origin = Literal["by construction", "fitted", "predicted", "estimated"]
Status = Literal["met", "explained", "unexplained"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """One row of the table before it is measured. Factors are stated here, in code, before any run."""

    id: str
    topic: str
    quantity: str
    published: Value
    unit: str = ""
    rule: Rule = "exact"
    factor: float = 1.0
    """For ``within``: the ratio emulated / published may lie from 1/factor to factor."""
    origin: Origin
    """``by construction``: the emulator implements this very rule; ``fitted``: a parameter was set by this figure;
    ``predicted``: it follows from parameters that other sources gave; ``estimated``: from the cost estimate."""
    source: str
    measure: Callable[[], Value] | None
    """None where the figure needs what no public source provides; then there is an explanation."""
    explanation: str = ""
    """Why the figure is not met, with the source or the section of docs/fidelity.md on what is not public."""


def within(
    identity: str,
    topic: str,
    quantity: str,
    published: float,
    factor: float,
    measure: Callable[[], float],
    source: str,
    *,
    origin: Origin = "predicted",
    explanation: str = "",
) -> Figure:
    """A figure to be met within a factor."""
    return Figure(
        id=identity, topic=topic, quantity=quantity, published=published, rule="within", factor=factor,
        origin=origin, source=source, measure=measure, explanation=explanation,
    )  # fmt: skip


def bound(
    identity: str,
    topic: str,
    quantity: str,
    rule: Literal["at most", "at least"],
    published: float,
    measure: Callable[[], float],
    source: str,
) -> Figure:
    """A published tolerance or floor that the emulated figure has to keep."""
    return Figure(
        id=identity, topic=topic, quantity=quantity, published=published, rule=rule, origin="predicted",
        source=source, measure=measure,
    )  # fmt: skip


def unavailable(identity: str, topic: str, quantity: str, published: str, source: str, reason: str) -> Figure:
    """A published figure whose counterpart needs what is not at hand, with the reason."""
    return Figure(
        id=identity, topic=topic, quantity=quantity, published=published, origin="predicted", source=source,
        measure=None, explanation=reason,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A figure with its counterpart."""

    figure: Figure
    emulated: Value | None
    ratio: float | None
    """Emulated / published; None for texts, for zero and where nothing was measured."""
    status: Status

    @property
    def is_numeric(self) -> bool:
        """Whether both sides are numbers."""
        return isinstance(self.figure.published, float) and isinstance(self.emulated, float)


def _ratio(published: Value, emulated: Value | None) -> float | None:
    if not isinstance(published, float) or not isinstance(emulated, float) or published == 0.0:
        return None
    return emulated / published


def _is_met(figure: Figure, emulated: Value, ratio: float | None) -> bool:
    if figure.rule == "exact" or not isinstance(emulated, float):
        return emulated == figure.published
    if not math.isfinite(emulated) or not isinstance(figure.published, float):
        return False
    if figure.rule == "at most":
        return emulated <= figure.published
    if figure.rule == "at least":
        return emulated >= figure.published
    return ratio is not None and 1 / figure.factor <= ratio <= figure.factor


def measured(figure: Figure) -> Row:
    """The row of `figure`, measured now."""
    emulated = None if figure.measure is None else figure.measure()
    ratio = _ratio(figure.published, emulated)
    if emulated is not None and _is_met(figure, emulated, ratio):
        status: Status = "met"
    else:
        status = "explained" if figure.explanation else "unexplained"
    return Row(figure=figure, emulated=emulated, ratio=ratio, status=status)


def _share_met(rows: list[Row]) -> float:
    return sum(row.status == "met" for row in rows) / len(rows) if rows else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """All rows, and the judgement on them."""

    rows: tuple[Row, ...]
    required_share: float = 0.8
    """Of the numeric rows, how many have to be met."""

    @property
    def share_met(self) -> float:
        """Of the numeric rows, how many are met."""
        return _share_met([row for row in self.rows if row.is_numeric])

    @property
    def share_of_predictions_met(self) -> float:
        """Of the numeric rows that were predicted, neither fitted nor true by construction, how many are met."""
        return _share_met([row for row in self.rows if row.is_numeric and row.figure.origin == "predicted"])

    @property
    def unexplained(self) -> tuple[Row, ...]:
        """Rows that are neither met nor explained."""
        return tuple(row for row in self.rows if row.status == "unexplained")

    @property
    def holds(self) -> bool:
        """Whether every row is met or explained, and enough of them met."""
        return not self.unexplained and self.share_met >= self.required_share


def table(figures: Iterable[Figure]) -> Table:
    """The table of `figures`, measured in order; an id used twice is an error."""
    chosen = tuple(figures)
    ids = [figure.id for figure in chosen]
    if len(set(ids)) != len(ids):
        raise ValueError(f"figure ids are used twice: {sorted({i for i in ids if ids.count(i) > 1})}")
    return Table(rows=tuple(measured(figure) for figure in chosen))
