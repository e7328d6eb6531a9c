"""Cases over several machines: balanced parts, the job matrix of GitHub Actions, safe file names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.errors import UsageError
from harness.matrix.sizing import estimate
from harness.records import Case

GITHUB_JOBS = 256
"""Most jobs that GitHub Actions makes from one matrix, per workflow run (GitHub: "Usage limits")."""
GITHUB_BYTES = 128 << 10
"""Linux refuses a longer single environment variable (MAX_ARG_STRLEN), through which job outputs travel;
GitHub's own limit for the outputs of a job is 1 MiB."""


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
    return split(cases, count, durations)[index - 1]


def split(cases: Sequence[Case], count: int, durations: Mapping[str, float] | None = None) -> list[tuple[Case, ...]]:
    """Return all ``count`` parts that `shard` numbers from 1."""
    home = {name: i for i, part in enumerate(_parts(cases, count, durations or {})) for name in part}
    parts: list[list[Case]] = [[] for _ in range(count)]
    for case in cases:
        parts[home[case.id]].append(case)
    return [tuple(part) for part in parts]


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
            f"--shards {shards}: GitHub makes 1 to {GITHUB_JOBS} jobs from a matrix; ask for no more, models share jobs"
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
