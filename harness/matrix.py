"""Manifest x axes - exclusions -> cases; selecting, sharding, naming and sizing them."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.records import (
    NATURAL,
    Case,
    Cell,
    Inputs,
    Manifest,
    Mode,
    ModelRow,
    Profile,
    Shape,
    Task,
    Timeouts,
    Tolerance,
    source_kind,
)

GITHUB_JOBS = 256
"""Most jobs that GitHub Actions makes from one matrix, per workflow run (GitHub: "Usage limits")."""
GITHUB_BYTES = 128 << 10
"""Linux refuses a longer single environment variable (MAX_ARG_STRLEN), through which job outputs travel;
GitHub's own limit for the outputs of a job is 1 MiB."""


def plan(manifest: Manifest, *, profile: str | None = None) -> tuple[Case, ...]:
    """Return the cases of a profile's rows, excluded ones included, in order of id.

    Raises UsageError for an unknown profile, and for two cases with one id.
    """
    sources = Profile().sources
    if profile is not None:
        if profile not in manifest.profiles:
            raise UsageError(_unknown("profile", profile, manifest.profiles))
        sources = manifest.profiles[profile].sources
    cases: dict[str, Case] = {}
    for name, row in manifest.models.items():
        if source_kind(row.source) not in sources:
            continue
        for cell in row.axes.over(manifest.axes).cells():
            case = _case(manifest, name, row, cell)
            if case.id in cases:
                raise UsageError(
                    f"two cases are called {case.id}; remove the double entry in an axis of {name}"
                )
            cases[case.id] = case
    return tuple(cases[case_id] for case_id in sorted(cases))


def case_id(model: str, task: Task, cell: Cell) -> str:
    """Return ``<model>/<task>/<target>-<mode>-<dtype>[-<shape>]``."""
    shape = "" if cell.shape == NATURAL else f"-{cell.shape}"
    return f"{model}/{task}/{cell.target}-{cell.mode}-{cell.dtype}{shape}"


def _case(manifest: Manifest, name: str, row: ModelRow, cell: Cell) -> Case:
    defaults = manifest.defaults
    inputs = (row.inputs or Inputs()).over(defaults.inputs.get(row.task, Inputs()))
    tolerance = (row.tolerance or Tolerance()).over(defaults.tolerance.get(row.task, Tolerance()))
    found = next((i for i, entry in enumerate(row.expect) if entry.matches(cell)), None)
    excluded = next((entry.reason for entry in row.exclude if entry.matches(cell)), None)
    return Case(
        id=case_id(name, row.task, cell),
        model=name,
        task=row.task,
        target=cell.target,
        mode=cell.mode,
        dtype=cell.dtype,
        shape=None if cell.shape == NATURAL else Shape.parse(cell.shape),
        source=row.source,
        inputs=inputs,
        tolerance=tolerance,
        expectation=None if found is None else row.expect[found],
        expectation_at=None if found is None else manifest.place("models", name, "expect", found),
        excluded=excluded,
        timeouts=_timeouts(row, defaults.timeouts),
        parameters=row.parameters,
        family=row.family,
        licence=row.licence,
    )


def _timeouts(row: ModelRow, default: Timeouts) -> Timeouts:
    if row.timeouts is None:
        return default
    own = {name: getattr(row.timeouts, name) for name in row.timeouts.model_fields_set}
    return default.model_copy(update=own)


def select(
    cases: Sequence[Case],
    *,
    models: Iterable[str] = (),
    tasks: Iterable[str] = (),
    targets: Iterable[str] = (),
    modes: Iterable[str] = (),
    dtypes: Iterable[str] = (),
    keyword: str | None = None,
) -> tuple[Case, ...]:
    """Return the cases that all given options leave; an option that is not given leaves all.

    Raises UsageError for a name that no planned case has, for a malformed ``keyword``, and when options
    leave nothing: an empty run proves nothing.
    """
    options: list[tuple[str, set[str], Callable[[Case], str]]] = [
        ("model", set(models), lambda case: case.model),
        ("task", set(tasks), lambda case: case.task),
        ("target", set(targets), lambda case: case.target),
        ("mode", set(modes), lambda case: case.mode),
        ("dtype", set(dtypes), lambda case: case.dtype),
    ]
    left = list(cases)
    for option, wanted, of in options:
        known = {str(of(case)) for case in cases}
        for name in sorted(wanted - known):
            raise UsageError(_unknown(option, name, known))
        left = [case for case in left if not wanted or of(case) in wanted]
    if keyword is not None and keyword.strip():
        matches = keyword_filter(keyword)
        left = [case for case in left if matches(case.id)]
    if cases and not left:
        given = [f"--{option} {name}" for option, names, _ in options for name in sorted(names)]
        given += [f"-k {keyword!r}"] if keyword else []
        raise UsageError(f"no case matches {' '.join(given)}; `conformance list` shows what there is")
    return tuple(left)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    names = sorted(str(one) for one in known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names[:20]) or 'none'}"
    return f"no {what} is called {name!r} in what is planned; {hint}"


def keyword_filter(expression: str) -> Callable[[str], bool]:
    """Return a test of case ids: ``and``, ``or``, ``not`` and parentheses over substrings, as pytest's -k.

    Substrings match in either case. Raises UsageError with the place of a mistake.
    """
    tokens = [(m.group(), m.start()) for m in re.finditer(r"[()]|[^\s()]+", expression)]
    if len(tokens) > 500:
        raise UsageError("-k: the expression is longer than 500 words; select by --model instead")
    return _Keyword(expression, tokens).parse()


class _Keyword:
    """Recursive descent over the words of a -k expression."""

    def __init__(self, text: str, tokens: list[tuple[str, int]]) -> None:
        self.text, self.tokens, self.at = text, tokens, 0

    def parse(self) -> Callable[[str], bool]:
        test = self._any()
        if self.at < len(self.tokens):
            raise self._error("'and', 'or' or the end")
        return test

    def _next(self) -> str | None:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else None

    def _accept(self, word: str) -> bool:
        found = self._next() == word
        self.at += found
        return found

    def _error(self, expected: str) -> UsageError:
        column = self.tokens[self.at][1] + 1 if self.at < len(self.tokens) else len(self.text) + 1
        return UsageError(f"-k {self.text!r}: expected {expected} at column {column}")

    def _any(self) -> Callable[[str], bool]:
        tests = [self._all()]
        while self._accept("or"):
            tests.append(self._all())
        return lambda name: any(test(name) for test in tests)

    def _all(self) -> Callable[[str], bool]:
        tests = [self._one()]
        while self._accept("and"):
            tests.append(self._one())
        return lambda name: all(test(name) for test in tests)

    def _one(self) -> Callable[[str], bool]:
        if self._accept("not"):
            inner = self._one()
            return lambda name: not inner(name)
        if self._accept("("):
            inner = self._any()
            if not self._accept(")"):
                raise self._error("')'")
            return inner
        word = self._next()
        if word is None or word in ("and", "or", ")"):
            raise self._error("a part of a case id, 'not' or '('")
        self.at += 1
        part = word.lower()
        return lambda name: part in name.lower()


def parse_shard(text: str) -> tuple[int, int]:
    """Return index (from 1) and count of ``2/5``. Raises UsageError for anything else."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard {text!r} is not I/N with 1 <= I <= N, for example 2/5")
    return int(match[1]), int(match[2])


def shard(
    cases: Sequence[Case], index: int, count: int, durations: Mapping[str, float] | None = None
) -> tuple[Case, ...]:
    """Return part ``index`` (from 1) of ``count``: each case is in exactly one part, in the given order.

    Cases of one model stay together, since they share its checkpoint, unless there are fewer models than
    parts. Parts are balanced by ``durations`` (seconds by case id) where known, by size otherwise.
    """
    if not 1 <= index <= count:
        raise UsageError(f"shard {index}/{count} does not exist; the index runs from 1 to {count}")
    mine = _parts(cases, count, durations or {})[index - 1]
    return tuple(case for case in cases if case.id in mine)


def _parts(cases: Sequence[Case], count: int, durations: Mapping[str, float]) -> list[set[str]]:
    weights = _weights(cases, durations)
    groups: dict[str, list[str]] = {}
    for case in sorted(cases, key=lambda case: case.id):
        groups.setdefault(case.model, []).append(case.id)

    def weight(unit: Sequence[str]) -> tuple[float, str]:
        return (-sum(weights[name] for name in unit), unit[0])

    units = list(groups.values())
    while len(units) < count and (large := [unit for unit in units if len(unit) > 1]):
        unit = min(large, key=weight)
        units.remove(unit)
        units += [unit[: len(unit) // 2], unit[len(unit) // 2 :]]
    parts: list[set[str]] = [set() for _ in range(count)]
    loads = [0.0] * count
    for unit in sorted(units, key=weight):
        lightest = loads.index(min(loads))
        parts[lightest].update(unit)
        loads[lightest] -= weight(unit)[0]
    return parts


def _weights(cases: Sequence[Case], durations: Mapping[str, float]) -> dict[str, float]:
    """Return seconds by case id; what was never timed counts by its estimate."""
    weights = {}
    for case in cases:
        known = durations.get(case.id)
        weights[case.id] = known if known is not None and known > 0 else estimate(case).seconds or 60.0
    return weights


def github(cases: Sequence[Case], shards: int) -> dict[str, Any]:
    """Return the job matrix for GitHub Actions: ``{"empty", "cases", "matrix": {"include": [...]}}``.

    The jobs carry their shard only; each plans its cases itself with ``--shard``. There is no job without
    a case, so there can be fewer jobs than ``shards``. ``empty`` is for the job's ``if:``, because GitHub
    refuses a matrix without jobs. Raises UsageError beyond GitHub's limits.
    """
    if not 1 <= shards <= GITHUB_JOBS:
        raise UsageError(
            f"--shards {shards}: GitHub makes 1 to {GITHUB_JOBS} jobs from a matrix; ask for no more, "
            "models share jobs"
        )
    count = max(1, min(shards, len(cases)))
    include = [{"shard": f"{i}/{count}", "name": f"{i}-of-{count}"} for i in range(1, count + 1)]
    result = {
        "empty": not cases,
        "cases": len(cases),
        "matrix": {"include": include if cases else []},
    }
    size = len(json.dumps(result).encode())
    if size > GITHUB_BYTES:
        raise UsageError(f"the job matrix has {size} bytes, more than {GITHUB_BYTES}; ask for fewer --shards")
    return result


def slug(case_id: str) -> str:
    """Return a file name for a case id: lower-case ASCII, at most 97 characters, one per id.

    The hash keeps ids apart that look alike, also where file systems ignore case.
    """
    plain = re.sub(r"[^a-z0-9._]+", "-", case_id.lower()).strip("-.")[:80]
    digest = hashlib.sha256(case_id.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{plain}-{digest}" if plain else digest


@dataclass(frozen=True)
class Estimate:
    """What a case is expected to take, in orders of magnitude."""

    memory_bytes: int | None
    """Host bytes of the largest process; None when the number of parameters is unknown."""
    seconds: float | None


PROCESS_BYTES = 700 << 20
"""Resident size of a process with torch and transformers loaded, before any weight."""
FLOAT32_BYTES = 4
VOCABULARY = 262_144
"""Largest vocabulary among the rows (Gemma): bounds the logits when planning knows no config."""
COMPILE_SECONDS = 30.0
"""A first ``torch.compile`` of a 135M model took 10 to 40 s per plan."""
MULTIPLICATIONS_PER_SECOND = 5e9
"""Multiply-adds per second of one thread, for planning only."""


def estimate(case: Case, parameters: int | None = None) -> Estimate:
    """Return the memory and time that a case is expected to take.

    Reference and candidate are processes of their own. The reference holds float32 weights; the emulated
    device holds a float32 shadow of each weight, so both need 4 bytes per parameter and activations beside.
    ``parameters`` overrides what the manifest says, once the checkpoint's metadata is known.
    """
    count = parameters or case.parameters
    if count is None:
        return Estimate(None, None)
    tokens = _tokens(case)
    steps = case.inputs.decode_steps or 0
    logits = VOCABULARY if case.task in (Task.CAUSAL_LM, Task.MASKED_LM) else 1
    activations = FLOAT32_BYTES * tokens * (2 * logits + int(count**0.5))
    memory = PROCESS_BYTES + FLOAT32_BYTES * count + activations
    plans = 2 if steps else 1
    compiling = COMPILE_SECONDS * plans if case.mode is Mode.COMPILED else 0.0
    # Reference, control and candidate each run the prefill and the steps.
    work = 3 * count * (tokens + steps * _batch(case)) / MULTIPLICATIONS_PER_SECOND
    return Estimate(memory, round(5.0 + compiling + work, 1))


def fits(case: Case, memory_bytes: int, parameters: int | None = None) -> str | None:
    """Return None when a case fits this memory or its size is unknown, else the reason why it does not."""
    needed = estimate(case, parameters).memory_bytes
    if needed is None or needed <= memory_bytes:
        return None
    count = parameters or case.parameters or 0
    return (
        f"needs about {needed / 1e9:.1f} GB of memory ({count / 1e9:.2f} billion parameters in float32), "
        f"{memory_bytes / 1e9:.1f} GB are available"
    )


def _batch(case: Case) -> int:
    return case.shape.batch if case.shape else max(1, len(case.inputs.texts or case.inputs.ids))


def _tokens(case: Case) -> int:
    """Return batch x sequence; a token is taken for three characters of text."""
    if case.shape:
        return case.shape.batch * case.shape.sequence
    longest = max((len(row) for row in case.inputs.ids), default=0)
    longest = max([longest, *(len(text) // 3 + 2 for text in case.inputs.texts)])
    return _batch(case) * max(1, longest)
