"""The baseline: what each case is known to do, as text that is reviewed like code.

A file per profile and lane, a line per case, tab separated::

    # baseline 1 nightly x86_64 emulator
    # case	status	failure	error
    smollm2-135m/causal-lm/spyre-eager-float16	PASS	-	3.1e-03

A run is held against it in both directions: what got better has to be accepted too, or it could get worse
again unseen.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import UsageError
from harness.history.transitions import failure
from harness.history.views import GOOD, TELLING, RunView, Sample
from harness.records import Change, ChangeKind, ExpectationMode, Status

FORMAT = 1
BAND = 1.25
"""An error within this factor of the baseline's is the baseline's: the line stays as it is."""
KEPT = TELLING | {Status.SKIP}
"""Statuses that a baseline can hold. Without a result a case keeps the line that it has."""
COLUMNS = "# case\tstatus\tfailure\terror"


@dataclass(frozen=True)
class Line:
    """What one case is known to do."""

    status: Status
    failure: str = "-"
    """Kind of failure, or why it is skipped; ``-`` for a pass."""
    error: float | None = None
    """Largest relative L2 error, to two digits."""

    def __str__(self) -> str:
        error = "-" if self.error is None else f"{self.error:.1e}"
        return f"{self.status}\t{self.failure}\t{error}"


@dataclass(frozen=True)
class Baseline:
    """What all cases of a profile are known to do in one lane."""

    profile: str
    lane: str
    lines: Mapping[str, Line]

    def text(self) -> str:
        """Return the file's content: sorted, so that a change of one case changes one line."""
        head = [f"# baseline {FORMAT} {self.profile} {self.lane}", COLUMNS]
        return "\n".join([*head, *(f"{name}\t{line}" for name, line in sorted(self.lines.items()))]) + "\n"


def file_name(profile: str | None, lane: str) -> str:
    """Return the name of the file below ``reports/baselines``."""
    return re.sub(r"[^a-z0-9_]+", "-", f"{profile or 'all'} {lane}".lower()) + ".tsv"


def read(path: Path) -> Baseline:
    """Return the baseline in a file. Raises UsageError with the line of what cannot be read."""
    try:
        rows = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist; `conformance baseline update RUN_DIR` writes it") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; name the file of a baseline") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: cannot be read: {error}; name the file of a baseline") from None
    head = re.fullmatch(r"# baseline (\d+) (\S+) (\S+ \S+)", rows[0] if rows else "")
    if head is None:
        raise UsageError(f"{path}:1: is no baseline; the first line is '# baseline {FORMAT} PROFILE LANE'")
    if int(head[1]) > FORMAT:
        raise UsageError(f"{path}:1: format {head[1]} is newer than this harness knows; upgrade the harness")
    lines: dict[str, Line] = {}
    for number, row in enumerate(rows[1:], start=2):
        if row and not row.startswith("#"):
            name, line = _parse(row, f"{path}:{number}")
            if name in lines:
                raise UsageError(f"{path}:{number}: {name} is there twice; keep one line")
            lines[name] = line
    return Baseline(head[2], head[3], lines)


def _parse(row: str, place: str) -> tuple[str, Line]:
    cells = row.split("\t")
    if len(cells) != 4 or cells[1] not in KEPT:
        raise UsageError(f"{place}: {row[:60]!r} is no line of a baseline (a conflict?); {COLUMNS[2:]}")
    try:
        error = None if cells[3] == "-" else float(cells[3])
    except ValueError:
        error = math.nan
    if error is not None and not math.isfinite(error):  # no error is larger than NaN
        raise UsageError(f"{place}: {cells[3]!r} is no number; write '-' where there is none")
    return cells[0], Line(Status(cells[1]), cells[2], error)


def line(sample: Sample) -> Line:
    """Return what a sample shows, in the baseline's words."""
    told = "-" if sample.status in (Status.PASS, Status.XPASS) else failure(sample)
    error = sample.error if sample.status in TELLING else None
    finite = error is not None and math.isfinite(error)
    return Line(sample.status, told, float(f"{error:.1e}") if finite else None)


def against(baseline: Baseline, run: RunView) -> tuple[Change, ...]:
    """Return where a run differs from the baseline, worse first; NOTRUN and ERROR say nothing about it."""
    found = list(_differences(baseline, run))
    order = {"worse": 0, "neutral": 1, "better": 2}
    return tuple(sorted(found, key=lambda change: (order[change.direction], change.case)))


def _differences(baseline: Baseline, run: RunView) -> Iterator[Change]:
    for name, sample in run.samples.items():
        if sample.status not in KEPT:
            continue
        known, now = baseline.lines.get(name), line(sample)
        if known is None:
            bad: Literal["worse", "neutral"] = "worse" if sample.status is Status.FAIL else "neutral"
            yield _difference(run, name, ChangeKind.NEW, bad, None, now, f"is not in the baseline: {_told(now)}")
        elif (known.status, known.failure) != (now.status, now.failure):
            yield _judge(run, name, known, now)
        elif _moved(known, now):
            better = (now.error or 0) < (known.error or 0)
            what = f"error {_number(known.error)} in the baseline, {_number(now.error)} now"
            yield _difference(run, name, ChangeKind.DRIFTED, "better" if better else "worse", known, now, what)
    if not run.partial:
        for name in sorted(baseline.lines.keys() - run.planned):
            known = baseline.lines[name]
            yield _difference(run, name, ChangeKind.GONE, "worse", known, None, "is in the baseline and not planned")


def _judge(run: RunView, name: str, known: Line, now: Line) -> Change:
    what = f"{_told(known)} in the baseline, {_told(now)} now"
    rank = {Status.PASS: 0, Status.XPASS: 0, Status.XFAIL: 1, Status.FAIL: 2, Status.SKIP: 3}
    if now.status is Status.SKIP:
        return _difference(run, name, ChangeKind.GONE, "worse", known, now, what)
    if known.status is Status.SKIP:
        bad: Literal["worse", "better"] = "better" if now.status in GOOD else "worse"
        return _difference(run, name, ChangeKind.NEW, bad, known, now, what)
    if rank[now.status] < rank[known.status]:
        kind = ChangeKind.STALE_EXPECTATION if now.status is Status.XPASS else ChangeKind.FIXED
        return _difference(run, name, kind, "better", known, now, what)
    if rank[now.status] == rank[known.status] == 0:
        return _difference(run, name, ChangeKind.FIXED, "better", known, now, what)
    return _difference(run, name, ChangeKind.REGRESSED, "worse", known, now, what)


def _moved(known: Line, now: Line) -> bool:
    if not known.error or not now.error:
        return known.error != now.error
    return not 1 / BAND <= now.error / known.error <= BAND


def _difference(
    run: RunView,
    name: str,
    kind: ChangeKind,
    direction: Literal["better", "worse", "neutral"],
    known: Line | None,
    now: Line | None,
    sentence: str,
) -> Change:
    return Change(
        case=name,
        kind=kind,
        direction=direction,
        run=run.run_id,
        since=run.run_id,
        status_before=known.status if known else None,
        status=now.status if now else None,
        metric="relative_l2" if kind is ChangeKind.DRIFTED else None,
        value_before=known.error if known else None,
        value=now.error if now else None,
        sentence=sentence,
    )


def update(baseline: Baseline | None, run: RunView, accept: Literal["better", "worse"] | None = None) -> Baseline:
    """Return the baseline with a run accepted: only lines that differ change.

    Better and worse go in separate updates: with both there, ``accept`` says which, and new and gone cases
    go with either. Raises UsageError for a run that is partial, incomplete, damaged, drilled, of another profile
    or lane, or that mixes better and worse without ``accept``.
    """
    _refuse(baseline, run)
    old = baseline or Baseline(run.profile or "all", run.lane, {})
    found = against(old, run)
    counts = {way: sum(change.direction == way for change in found) for way in ("better", "worse")}
    if baseline is not None and all(counts.values()) and accept is None:
        raise UsageError(
            f"the run is better in {counts['better']} cases and worse in {counts['worse']}; accept them apart, "
            "--accept better first, so that each diff can be reviewed for what it is"
        )
    lines = dict(old.lines)
    for change in found:
        if baseline is not None and accept is not None and change.direction not in (accept, "neutral"):
            continue
        if change.case in run.samples:
            lines[change.case] = line(run.samples[change.case])
        else:
            del lines[change.case]
    return Baseline(old.profile, old.lane, lines)


def _refuse(baseline: Baseline | None, run: RunView) -> None:
    unwritable = [name for name in run.samples if not name.isprintable() or len(name.split()) != 1]
    drilled = [name for name, sample in run.samples.items() if "drilled" in sample.flags]
    problem = ""
    if run.partial:
        problem = f"is a part of its profile only ({run.selection})"
    elif not run.finished or run.missing:
        problem = f"is incomplete: {len(run.missing)} planned cases have no result"
    elif run.damage:
        problem = f"is damaged: {run.first_damage}"
    elif run.expectations is ExpectationMode.VALIDATE:
        problem = "set expectations aside (validate)"
    elif unwritable:
        problem = f"has a case whose id cannot stand in a line of text ({unwritable[0]!r})"
    elif drilled:
        problem = f"was made with faults injected on purpose ({drilled[0]})"
    elif baseline is not None and (run.profile or "all", run.lane) != (baseline.profile, baseline.lane):
        have = f"{run.profile or 'all'} on {run.lane}"
        problem = f"is of {have}, the baseline of {baseline.profile} on {baseline.lane}"
    if problem:
        raise UsageError(f"run {run.run_id} {problem}; it cannot become the baseline")


def patch(name: str, old: Baseline | None, new: Baseline) -> str:
    """Return the update as a patch that ``git apply`` takes; empty when nothing differs."""
    before = old.text().splitlines(keepends=True) if old else []
    origin = f"a/{name}" if old else "/dev/null"
    return "".join(difflib.unified_diff(before, new.text().splitlines(keepends=True), origin, f"b/{name}"))


def _told(line: Line) -> str:
    return f"{line.status} ({line.failure})" if line.failure != "-" else str(line.status)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.1e}"
