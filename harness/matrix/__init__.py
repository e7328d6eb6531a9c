"""Manifest x axes - exclusions -> cases; selecting, sharding, naming and sizing them."""

from __future__ import annotations

from harness.errors import UsageError
from harness.matrix.selection import keyword_filter, select, unknown
from harness.matrix.shards import github, parse_shard, shard, slug, split
from harness.matrix.sizing import Estimate, estimate, fits
from harness.records import (
    NATURAL,
    Case,
    Cell,
    Inputs,
    Manifest,
    ModelRow,
    Profile,
    Shape,
    Task,
    Timeouts,
    Tolerance,
    source_kind,
    variant,
)

__all__ = [
    "Estimate",
    "case_id",
    "estimate",
    "fits",
    "github",
    "keyword_filter",
    "parse_shard",
    "plan",
    "select",
    "shard",
    "slug",
    "split",
]


def plan(manifest: Manifest, *, profile: str | None = None) -> tuple[Case, ...]:
    """Return the cases of a profile's rows and axes, excluded ones included, in order of id.

    Raises UsageError for an unknown profile.
    """
    wanted = Profile()
    if profile is not None:
        if profile not in manifest.profiles:
            raise UsageError(unknown("profile", profile, manifest.profiles))
        wanted = manifest.profiles[profile]
    cases: dict[str, Case] = {}
    for name, row in manifest.models.items():
        if source_kind(row.source) not in wanted.sources:
            continue
        for cell in filter(wanted.axes.has, row.axes.over(manifest.axes).cells()):
            case = _case(manifest, name, row, cell)
            cases[case.id] = case
    return tuple(cases[case_id] for case_id in sorted(cases))


def case_id(model: str, task: Task, cell: Cell) -> str:
    """Return ``<model>/<task>/<target>-<mode>-<dtype>[-<shape>][-<check>]``."""
    parts = (cell.target, cell.mode, cell.dtype, variant(cell.shape, cell.check))
    return f"{model}/{task}/{'-'.join(part for part in parts if part)}"


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
        check=cell.check,
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
