"""What changes have in common that nothing recorded explains: where they first go wrong, or how they end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.history.transitions import failure
from harness.history.views import RunView, Trait
from harness.records import Change, Status

WIDE = 3
"""Model families that show the same thing in one night from which on it is one thing: unlike a model's own
defect, what they share is the device or its stack."""


class Symptom(NamedTuple):
    """What stands for the cause of a change."""

    mark: tuple[str, ...]
    """Equal for changes of one cause, on this night and on others."""
    text: str
    """The same for people: ``at aten.mm.default``, ``in granite, crash at run``."""


@dataclass(frozen=True)
class _Seen:
    """A change, how its case ended and what is known of the case."""

    change: Change
    end: str
    trait: Trait


def symptoms(changes: Sequence[Change], runs: Sequence[RunView]) -> list[Symptom]:
    """Return the symptom of each change; ``runs`` is the history with tonight's run last.

    Changes share one where the same op goes wrong first. A case that was not searched, or in vain, joins the
    only place that was found among those which end alike, if its family is among them or many families are.
    What is left goes by its end: one symptom for each family, or a single one where many families show it.
    """
    seen = [_seen(change, runs) for change in changes]
    alike: defaultdict[tuple[str, ...], list[_Seen]] = defaultdict(list)
    for one in seen:
        alike[_shape(one)].append(one)
    found = {shape: _Group.of(members) for shape, members in alike.items()}
    return [found[_shape(one)].symptom(one) for one in seen]


def _seen(change: Change, runs: Sequence[RunView]) -> _Seen:
    trait = runs[-1].traits.get(change.case) or Trait(family=change.case.partition("/")[0])
    return _Seen(change, " ".join(_end(change, runs)), trait)


def _end(change: Change, runs: Sequence[RunView]) -> Iterator[str]:
    """Yield the words for how a case ended, without numbers or names that differ between cases."""
    sample = next((run.samples.get(change.case) for run in reversed(runs) if run.run_id == change.run), None)
    if change.metric:
        yield f"step in {change.metric}"
    elif sample is None:
        yield "not planned"
    elif sample.status is Status.SKIP:
        yield f"skipped, {sample.kind}"
    else:
        yield failure(sample)
        if sample.stage:
            yield f"at {sample.stage}"


def _shape(one: _Seen) -> tuple[str, ...]:
    return (one.change.kind, one.change.direction, one.end)


@dataclass(frozen=True)
class _Group:
    """Changes of one kind and direction that end alike."""

    wide: bool
    only: str
    """The one place where those that were searched go wrong; empty without one or with several."""
    near: frozenset[str]
    """Families in which a place was found."""

    @classmethod
    def of(cls, members: Sequence[_Seen]) -> _Group:
        located = [one.trait for one in members if one.trait.wrong]
        places = {trait.wrong for trait in located}
        return cls(
            wide=len({one.trait.family for one in members}) >= WIDE,
            only=places.pop() if len(places) == 1 else "",
            near=frozenset(trait.family for trait in located),
        )

    def symptom(self, one: _Seen) -> Symptom:
        family, joins = one.trait.family, self.wide or one.trait.family in self.near
        place = one.trait.wrong or (self.only if joins else "")
        if place:
            return Symptom((place,), f"at {place}")
        if self.wide:
            return Symptom((one.end,), f"in many families, {one.end}")
        return Symptom((one.end, family), f"in {family}, {one.end}")
