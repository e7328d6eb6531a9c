"""Statuses -> exit status: the contract of the command line."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from harness.records import ExpectationMode, OutcomeKind, Status

_EXIT = {
    Status.PASS: 0,
    Status.XFAIL: 0,
    Status.SKIP: 0,
    Status.FAIL: 1,
    Status.XPASS: 1,
    Status.NOTRUN: 1,
    Status.ERROR: 3,
}


def exit_status(
    ends: Iterable[tuple[Status, OutcomeKind]],
    allowed: Collection[OutcomeKind] = (),
    mode: ExpectationMode = ExpectationMode.GATING,
) -> int:
    """The highest exit status of the cases; 3 for none at all. ``allowed``: kinds of NOTRUN that may be absent.

    Where expectations are set aside nothing is unexpected: only what was not seen (NOTRUN) or proves nothing
    (ERROR) counts.
    """
    seen = {Status.FAIL: 0} if mode is ExpectationMode.VALIDATE else {}
    exits = {**_EXIT, **seen}
    codes = [0 if status is Status.NOTRUN and kind in allowed else exits[status] for status, kind in ends]
    return max(codes, default=3)
