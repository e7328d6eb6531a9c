"""What changed in the newest run: the records of `harness.history`, or statuses alone without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from harness.records import Change, ChangeKind, Status
from harness.report.digest import LETTERS
from harness.report.timeline import Timeline

_DIRECTION_ORDER = {"worse": 0, "better": 1, "neutral": 2}
_KIND_ORDER = {kind: place for place, kind in enumerate(ChangeKind)}
_STATUS_OF = {letter: status for status, letter in LETTERS.items()}


def ordered(changes: Iterable[Change]) -> list[Change]:
    """Worse before better before neutral; within those by kind, then by case."""
    return sorted(changes, key=lambda one: (_DIRECTION_ORDER[one.direction], _KIND_ORDER[one.kind], one.case))


def labels(changes: Iterable[Change]) -> Mapping[str, str]:
    """Case id to the words for what became of it, joined by a space."""
    found: dict[str, list[str]] = {}
    for one in ordered(changes):
        words = found.setdefault(one.case, [])
        words += [word for word in (one.kind.value, one.direction) if word not in words]
    return {case_id: " ".join(words) for case_id, words in found.items()}


def derived(timeline: Timeline, new: int) -> list[Change]:
    """Changes of one run against the last complete run before it, from the statuses alone.

    A status says neither why nor how far: `harness.history` knows flaky from regressed, this does not.
    """
    old = timeline.last_complete_before(new)
    if old is None:
        return []
    moves = timeline.moves(old, new)
    before, after = timeline.statuses(old), timeline.statuses(new)
    made: list[Change] = []
    for kind, direction, ids in (
        (ChangeKind.REGRESSED, "worse", moves.worse),
        (ChangeKind.FIXED, "better", moves.better),
        (ChangeKind.NEW, "neutral", moves.new),
        (ChangeKind.GONE, "neutral", moves.gone),
    ):
        for case_id in ids:
            place = timeline.place[case_id]
            was, now = _STATUS_OF.get(before[place]), _STATUS_OF.get(after[place])
            made.append(_change(timeline, (old, new), case_id, kind, direction, was, now))
    return made


def _change(
    timeline: Timeline,
    runs: tuple[int, int],
    case_id: str,
    kind: ChangeKind,
    direction: str,
    was: Status | None,
    now: Status | None,
) -> Change:
    run = timeline.digests[runs[1]].run_id
    return Change.model_validate(
        {
            "case": case_id,
            "kind": kind,
            "direction": direction,
            "run": run,
            "since": run,
            "before": timeline.digests[runs[0]].run_id,
            "status_before": was,
            "status": now,
            "sentence": f"{was or 'not planned'} before, {now or 'not planned'} now.",
        }
    )


def of_run(run_id: str, changes: Sequence[Change]) -> list[Change]:
    """Those that this run shows, in reading order."""
    return ordered(one for one in changes if one.run == run_id)
