"""Digests of many runs side by side: what each case did over time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.report.columns import column_text
from harness.report.digest import ABSENT, LETTERS, UNDEFINED, RunDigest
from harness.report.night import UNEXPECTED

_BAD = frozenset(LETTERS[status] for status in UNEXPECTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moves:
    """Cases whose status moved between two runs, better and worse apart: their sums would cancel."""

    since: str
    """Run id of the older run."""
    worse: tuple[str, ...]
    """Case ids that were as expected and are not any more."""
    better: tuple[str, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]


class Timeline:
    """All runs, oldest first, with the cases of the newest run first in `ids`."""

    def __init__(self, digests: Sequence[RunDigest], ids: Sequence[str]) -> None:
        self.digests = tuple(digests)
        self.present = len(ids)
        """How many of `ids` the newest run holds."""
        known = dict.fromkeys(ids)
        for one in self.digests:
            known.update(dict.fromkeys(one.ids))
        self.ids = tuple(known)
        self.place = {case_id: place for place, case_id in enumerate(self.ids)}
        self._columns = [self._aligned(one) for one in self.digests]

    def _aligned(self, one: RunDigest) -> tuple[bytearray, array[float], array[float], array[float]]:
        """The digest's columns in the order of `ids`; absent cases are ``-`` and undefined."""
        size = len(self.ids)
        statuses = bytearray(ABSENT.encode() * size)
        columns = tuple(array("d", [UNDEFINED]) * size for _ in range(3))
        letters = one.statuses.encode()
        for position, case_id in enumerate(one.ids):
            place = self.place[case_id]
            statuses[place] = letters[position]
            columns[0][place] = one.ratios[position]
            columns[1][place] = one.shares[position]
            columns[2][place] = one.seconds[position]
        return statuses, columns[0], columns[1], columns[2]

    def statuses(self, run: int) -> str:
        """Status letters of all cases in one run."""
        return self._columns[run][0].decode()

    def numbers(self, run: int) -> tuple[array[float], array[float], array[float]]:
        """Error ratio, share on device and seconds of all cases in one run."""
        _, ratios, shares, seconds = self._columns[run]
        return ratios, shares, seconds

    def packed_statuses(self) -> Iterator[str]:
        """Run-length coded statuses per case, oldest first: ``P28F2``; a count of one is left out."""
        for letters in zip(*(columns[0] for columns in self._columns), strict=True):
            yield "".join(_coded(letter, sum(1 for _ in same)) for letter, same in groupby(letters))

    def history(self, first: int, last: int) -> dict[str, str]:
        """Numbers of the cases at these places, the last left out, over all runs: a column per kind.

        A column holds all cases of the oldest run, then all of the next one.
        """
        columns = [array("d") for _ in range(3)]
        for one in self._columns:
            for kind, column in enumerate(columns):
                column.extend(one[kind + 1][first:last])
        ratio, share, seconds = map(column_text, columns)
        return {"ratio": ratio, "share": share, "seconds": seconds}

    def last_complete_before(self, run: int) -> int | None:
        """Place of the newest complete run before this one: what a night is compared with."""
        places = range(run - 1, -1, -1)
        return next((place for place in places if self.digests[place].facts.complete), None)

    def moves(self, old: int, new: int) -> Moves:
        """What moved from one run to the other."""
        worse: list[str] = []
        better: list[str] = []
        added: list[str] = []
        gone: list[str] = []
        pairs = zip(self.ids, self.statuses(old), self.statuses(new), strict=True)
        for case_id, before, after in pairs:
            if before == after:
                continue
            if before == ABSENT:
                added.append(case_id)
            elif after == ABSENT:
                gone.append(case_id)
            elif (before in _BAD) != (after in _BAD):
                (worse if after in _BAD else better).append(case_id)
        return Moves(
            since=self.digests[old].run_id,
            worse=tuple(worse),
            better=tuple(better),
            new=tuple(added),
            gone=tuple(gone),
        )


def _coded(letter: int, times: int) -> str:
    return chr(letter) if times == 1 else f"{chr(letter)}{times}"
