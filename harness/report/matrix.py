"""The matrix of the newest run in packed columns: what the first view and every filter need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.records import Case, CaseResult, Check, Role
from harness.report.columns import column_text
from harness.report.digest import OUTCOMES, UNDEFINED, RunDigest
from harness.report.numbers import json_number
from harness.report.text import shown
from harness.report.timeline import Timeline

Configuration = tuple[str, str, str, str, str]
"""target, mode, dtype, shape"""
NAME_LIMIT = 300


@dataclass(slots=True)
class Words:
    """A dictionary column: each word once, then indices."""

    index: dict[str, int] = field(default_factory=dict)

    def code(self, word: str) -> int:
        """The word's index, new words at the end."""
        return self.index.setdefault(word, len(self.index))

    @property
    def words(self) -> list[str]:
        """All words in the order of their indices."""
        return list(self.index)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelEntry:
    """A row of the matrix: a model with the cases of one task, in configuration order."""

    model: str
    task: str
    cases: tuple[Case, ...]


def entries(cases: Iterable[Case]) -> list[ModelEntry]:
    """Rows of the matrix: by family, then by name with numbers in numeric order; Granite first."""
    grouped: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        grouped.setdefault((case.model, case.task.value), []).append(case)
    rows = [
        ModelEntry(model=model, task=task, cases=tuple(sorted(found, key=_configuration_order)))
        for (model, task), found in grouped.items()
    ]
    return sorted(rows, key=lambda row: (_family_order(row.cases[0].family), _natural(row.model), row.task))


def _family_order(family: str | None) -> tuple[int, str]:
    return (0 if family == "granite" else 2 if not family else 1, family or "")


def _natural(name: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d{1,18})", name.casefold())
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


def configuration(case: Case) -> Configuration:
    """The case's column in the matrix: the parts of the end of its id."""
    check = "" if case.check is Check.OUTPUTS else case.check.value
    return (case.target, case.mode.value, case.dtype.value, str(case.shape) if case.shape else "", check)


def _configuration_order(case: Case) -> tuple[str, int, str, tuple[int, int], int]:
    shape = (case.shape.batch, case.shape.sequence) if case.shape else (0, 0)
    return (case.target, 0 if case.mode == "eager" else 1, case.dtype.value, shape, list(Check).index(case.check))


def configurations(rows: Sequence[ModelEntry]) -> list[Configuration]:
    """Columns of the matrix: every configuration that occurs, in one order."""
    found = {configuration(case): _configuration_order(case) for row in rows for case in row.cases}
    return sorted(found, key=lambda one: found[one])


def matrix(
    rows: Sequence[ModelEntry],
    newest: RunDigest,
    timeline: Timeline,
    facts: Mapping[str, CaseFacts],
    changes: Mapping[str, str],
) -> dict[str, Any]:
    """The packed matrix. `changes`: words for what became of a case, by case id."""
    columns = configurations(rows)
    column = {one: code for code, one in enumerate(columns)}
    families, architectures, adapters, tasks, flags, histories, labels = (Words() for _ in range(7))
    cases = [case for row in rows for case in row.cases]
    place = {case_id: at for at, case_id in enumerate(newest.ids)}
    at = [place[case.id] for case in cases]
    packed = list(timeline.packed_statuses())
    return {
        "configs": columns,
        "names": [shown(row.model, NAME_LIMIT) for row in rows],
        "tasks": [tasks.code(row.task) for row in rows],
        "families": [families.code(row.cases[0].family or "") for row in rows],
        "architectures": [architectures.code(_architecture(row, facts)) for row in rows],
        "adapters": [adapters.code(_adapter(row, facts)) for row in rows],
        "counts": [len(row.cases) for row in rows],
        "config": [column[configuration(case)] for case in cases],
        "status": "".join(newest.statuses[i] for i in at),
        "outcome": [newest.outcomes[i] for i in at],
        "ratio": [_number(newest.ratios[i], 4) for i in at],
        "share": [_number(newest.shares[i], 4) for i in at],
        "seconds": [_number(newest.seconds[i], 3) for i in at],
        "flags": [flags.code(facts[case.id].flags if case.id in facts else "") for case in cases],
        "history": [histories.code(packed[timeline.place[case.id]]) for case in cases],
        "labels": [labels.code(changes.get(case.id, "")) for case in cases],
        "words": {
            "task": tasks.words,
            "family": families.words,
            "architecture": architectures.words,
            "adapter": adapters.words,
            "flags": flags.words,
            "history": histories.words,
            "labels": labels.words,
            "outcome": OUTCOMES,
        },
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseFacts:
    """What the matrix says of a case beyond the digest."""

    architecture: str
    flags: str
    replaced: frozenset[str] | None = None
    """Names, without overload, of the ops that the device ran in an equivalent form; None: not told."""

    @classmethod
    def of(cls, result: CaseResult) -> CaseFacts:
        """The facts of one result."""
        checkpoint = result.checkpoint
        candidate = result.observations.get(Role.CANDIDATE)
        replaced = candidate.device.replaced if candidate and candidate.device else None
        return cls(
            architecture=shown(checkpoint.architecture or "", NAME_LIMIT) if checkpoint else "",
            flags=" ".join(result.verdict.flags),
            replaced=None if replaced is None else frozenset(shown(_short(op), NAME_LIMIT) for op in replaced),
        )


def _short(op: str) -> str:
    """``aten.native_layer_norm.default`` -> ``native_layer_norm``."""
    parts = op.split(".")
    return parts[1] if len(parts) > 2 else op


def _architecture(row: ModelEntry, facts: Mapping[str, CaseFacts]) -> str:
    known = (facts[case.id].architecture for case in row.cases if case.id in facts)
    return next((name for name in known if name), "")


def _adapter(row: ModelEntry, facts: Mapping[str, CaseFacts]) -> str:
    """What the model needs in an equivalent form, over its cases; empty where no device told."""
    told = [facts[case.id].replaced for case in row.cases if case.id in facts]
    known = [one for one in told if one is not None]
    if not known:
        return ""
    return " + ".join(sorted(frozenset[str]().union(*known))) or "no op replaced"


def _number(value: float, digits: int) -> float | int | str | None:
    return None if value == UNDEFINED else json_number(value, digits)


def run_columns(timeline: Timeline, run: int) -> dict[str, Any]:
    """One run's numbers in the order of the matrix, cases that are gone at the end: for comparison."""
    ratios, shares, seconds = timeline.numbers(run)
    return {"ratio": column_text(ratios), "share": column_text(shares), "seconds": column_text(seconds)}


def gone(timeline: Timeline) -> dict[str, Any]:
    """Cases that earlier runs held and the newest does not, with their history."""
    history = list(timeline.packed_statuses())
    return {
        "ids": [shown(case_id, NAME_LIMIT) for case_id in timeline.ids[timeline.present :]],
        "history": history[timeline.present :],
    }
