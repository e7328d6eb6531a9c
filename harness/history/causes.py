"""Changes told to people: better and worse apart, and those with one cause together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.history.attribution import Suspect, explain_change
from harness.history.symptoms import symptoms
from harness.history.views import RunView
from harness.records import Change, ChangeKind

SHOWN = 20
"""Cases that a text lists for one cause before it counts the rest."""
LIKELY = 0.3
"""Weight from which on a suspect is named as a cause; weaker ones would gather what has nothing in common."""


@dataclass(frozen=True)
class Cause:
    """Changes of one kind and direction that share their likeliest suspect, or without one their symptom."""

    key: str
    """Stable over nights: the same kind, direction and suspect or symptom give the same key, so that one issue
    is updated instead of another opened."""
    name: str
    """What it is, without a count: ``regressed with torch 2.14.0``, ``regressed at aten.mm.default``."""
    title: str
    """The same with the case, or how many there are."""
    changes: tuple[Change, ...]
    suspects: tuple[Suspect, ...]
    """Of the first change, likeliest first."""


def causes(changes: Sequence[Change], runs: Sequence[RunView]) -> tuple[Cause, ...]:
    """Return changes grouped by cause, in the order of the changes. ``runs`` is the history, tonight's run last."""
    groups: dict[tuple[str, ...], list[tuple[Change, str, tuple[Suspect, ...]]]] = {}
    explained: dict[tuple[object, ...], tuple[Suspect, ...]] = {}
    by_id = {run.run_id: run for run in runs}
    for change, symptom in zip(changes, symptoms(changes, runs), strict=True):
        ground = _ground(change, by_id)
        if ground not in explained:
            explained[ground] = explain_change(runs, change)
        found = explained[ground]
        named = [suspect for suspect in found[:1] if suspect.weight >= LIKELY]
        what = [part for suspect in named for part in (suspect.kind, suspect.name, suspect.after)]
        text = f"with {named[0].name} {named[0].after}" if named else symptom.text
        key = (change.kind.value, change.direction, *(what or symptom.mark))
        groups.setdefault(key, []).append((change, text, found))
    return tuple(_cause(key, group) for key, group in groups.items())


def _ground(change: Change, runs: Mapping[str, RunView]) -> tuple[object, ...]:
    """Return what suspects depend on: cases equal in it share them, so that a night of many explains few."""
    ends = [run.samples.get(change.case) for name in (change.before, change.since) if (run := runs.get(name or ""))]
    checkpoints = tuple(one.checkpoint if one else "" for one in ends)
    other = checkpoints if len(set(checkpoints)) > 1 else ()
    return (change.before, change.since, change.metric, "-compiled-" in change.case, change.kind, other)


def _cause(key: tuple[str, ...], group: Sequence[tuple[Change, str, tuple[Suspect, ...]]]) -> Cause:
    first, text, suspects = group[0]
    count = f"{len(group)} cases" if len(group) > 1 else first.case
    return Cause(
        key=hashlib.sha256("\n".join(key).encode()).hexdigest()[:12],
        name=f"{_kind(first)} {text}",
        title=f"{_kind(first)}: {count} {text}",
        changes=tuple(change for change, _, _ in group),
        suspects=suspects,
    )


def _kind(change: Change) -> str:
    kind = change.kind.replace("_", " ")
    return f"{kind} ({change.direction})" if change.kind is ChangeKind.DRIFTED else kind


def tell(changes: Sequence[Change], runs: Sequence[RunView]) -> str:
    """Return the change report of a night as Markdown; ``runs`` is the history with tonight's run last."""
    tonight = runs[-1]
    lines = [f"# Changes of {tonight.run_id}", ""]
    before = [run for run in runs[:-1] if run.lane == tonight.lane]
    if not before:
        lines += [f"No baseline: this is the first run on {tonight.lane}.", ""]
    else:
        counts = {way: sum(change.direction == way for change in changes) for way in ("worse", "better", "neutral")}
        lines += [f"{counts['worse']} worse, {counts['better']} better, {counts['neutral']} other.", ""]
    for way, heading in (("worse", "Worse"), ("better", "Better"), ("neutral", "Other")):
        found = causes([change for change in changes if change.direction == way], runs)
        if found:
            lines += [f"## {heading}", ""]
            lines += [line for cause in found for line in _listed(cause)]
    return "\n".join(lines).rstrip() + "\n"


def _listed(cause: Cause) -> Iterator[str]:
    yield f"### {cause.title}"
    yield ""
    for change in cause.changes[:SHOWN]:
        since = f" (since {change.since})" if change.since != change.run else ""
        yield f"- `{change.case}`: {change.sentence}{since}"
    if len(cause.changes) > SHOWN:
        yield f"- and {len(cause.changes) - SHOWN} more"
    for suspect in cause.suspects[:5]:
        yield f"- suspect: {suspect}"
    yield ""
