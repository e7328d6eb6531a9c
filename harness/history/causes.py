"""Changes told to people: better and worse apart, and those with one cause together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.history.attribution import Suspect, explain_change
from harness.history.views import RunView
from harness.records import Change, ChangeKind

SHOWN = 20
"""Cases that a text lists for one cause before it counts the rest."""
LIKELY = 0.3
"""Weight from which on a suspect is named as a cause; weaker ones would gather what has nothing in common."""


@dataclass(frozen=True)
class Cause:
    """Changes of one kind and direction that share their likeliest suspect."""

    key: str
    """Stable over nights: the same kind, direction and suspect give the same key, so that one issue is
    updated instead of another opened."""
    title: str
    changes: tuple[Change, ...]
    suspects: tuple[Suspect, ...]
    """Of the first change, likeliest first."""


def causes(changes: Sequence[Change], runs: Sequence[RunView]) -> tuple[Cause, ...]:
    """Return changes grouped by cause, in the order of the changes. ``runs`` includes tonight's."""
    groups: dict[tuple[str, ...], list[Change]] = {}
    suspects: dict[tuple[str, ...], tuple[Suspect, ...]] = {}
    explained: dict[tuple[str | None, str, str], tuple[Suspect, ...]] = {}
    for change in changes:
        # Cases that changed between the same two runs, in the same mode, share their suspects.
        pair = (change.before, change.since, f"{change.metric} {'-compiled-' in change.case} {change.kind}")
        if pair not in explained:
            explained[pair] = explain_change(runs, change)
        found = explained[pair]
        named = [suspect for suspect in found[:1] if suspect.weight >= LIKELY]
        what = [part for suspect in named for part in (suspect.kind, suspect.name, suspect.after)]
        key = (change.kind.value, change.direction, *what)
        groups.setdefault(key, []).append(change)
        suspects.setdefault(key, found)
    return tuple(
        Cause(
            key=hashlib.sha256("\n".join(key).encode()).hexdigest()[:12],
            title=_title(group, suspects[key]),
            changes=tuple(group),
            suspects=suspects[key],
        )
        for key, group in groups.items()
    )


def _title(group: Sequence[Change], suspects: Sequence[Suspect]) -> str:
    first = group[0]
    count = f"{len(group)} cases" if len(group) > 1 else first.case
    cause = f" with {suspects[0].name} {suspects[0].after}" if suspects and suspects[0].weight >= LIKELY else ""
    kind = first.kind.replace("_", " ")
    way = f" ({first.direction})" if first.kind is ChangeKind.DRIFTED else ""
    return f"{kind}{way}: {count}{cause}"


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
            lines += [line for cause in found for line in _cause(cause)]
    return "\n".join(lines).rstrip() + "\n"


def _cause(cause: Cause) -> Iterator[str]:
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
