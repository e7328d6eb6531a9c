"""What is wrong, or worth a look, in a manifest that is well-formed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Literal

from harness.manifest.tree import KeyPath
from harness.records import HubSource, Manifest, ModelRow, source_kind


@dataclass(frozen=True)
class Remark:
    """One thing that `lint` has to say about a manifest that could be read."""

    severity: Literal["error", "warning"]
    text: str
    """Begins with ``file:line:`` where the manifest came from a file."""

    def __str__(self) -> str:
        return f"{self.text}" if self.severity == "error" else f"{self.text} (warning)"


def lint(manifest: Manifest, today: date) -> list[Remark]:
    """Return what is wrong, or worth a look, in a manifest that is well-formed."""
    remarks = [*_duplicate_checkpoints(manifest), *_empty_profiles(manifest)]
    for task, tolerance in manifest.defaults.tolerance.items():
        place = ("defaults", "tolerance", str(task))
        remarks += _unexplained(manifest, place, tolerance.limits, tolerance.reason)
    for name, row in manifest.models.items():
        remarks += _lint_row(manifest, name, row, today)
    return remarks


def _lint_row(manifest: Manifest, name: str, row: ModelRow, today: date) -> Iterator[Remark]:
    if row.tolerance is not None:
        place = ("models", name, "tolerance")
        yield from _unexplained(manifest, place, row.tolerance.limits, row.tolerance.reason)
    yield from _dead_entries(manifest, name, row)
    for index, entry in enumerate(row.expect):
        where = manifest.place("models", name, "expect", index)
        if entry.expires is not None and entry.expires <= today:
            yield Remark(
                "error",
                f"{where}: the expectation {entry.outcome!s} of {name} expired on {entry.expires}; "
                "see whether the defect is still there, then remove the entry or set a new date",
            )
        if entry.issue is None and entry.expires is None:
            yield Remark(
                "warning",
                f"{where}: the expectation {entry.outcome!s} of {name} has neither 'issue' nor 'expires', "
                "so nobody will look at it again",
            )
    if isinstance(row.source, HubSource) and row.parameters is None:
        yield Remark(
            "warning",
            f"{manifest.place('models', name)}: {name} has no 'parameters', so whether it fits is known "
            "only after its metadata has been fetched",
        )
    if row.licence is None:
        yield Remark("warning", f"{manifest.place('models', name)}: {name} names no 'licence'")


def _dead_entries(manifest: Manifest, name: str, row: ModelRow) -> Iterator[Remark]:
    """Yield exclusions that match no case, and expectations that no case would ever use."""
    cells = list(row.axes.over(manifest.axes).cells())
    for index, exclusion in enumerate(row.exclude):
        if not any(exclusion.matches(cell) for cell in cells):
            where = manifest.place("models", name, "exclude", index)
            yield Remark("error", f"{where}: this exclusion matches no case of {name}; remove or mend it")
    cells = [cell for cell in cells if not any(entry.matches(cell) for entry in row.exclude)]
    for index, entry in enumerate(row.expect):
        matched = [cell for cell in cells if entry.matches(cell)]
        where = manifest.place("models", name, "expect", index)
        if not matched:
            yield Remark(
                "error",
                f"{where}: the expectation {entry.outcome!s} matches no case of {name} that runs; remove or mend it",
            )
        elif all(any(earlier.matches(cell) for earlier in row.expect[:index]) for cell in matched):
            yield Remark(
                "error",
                f"{where}: the expectation {entry.outcome!s} of {name} is never used, since earlier entries "
                "match the same cases and the first match holds; put the narrower entry first",
            )


def _unexplained(manifest: Manifest, place: KeyPath, limits: Iterable[str], reason: str | None) -> Iterator[Remark]:
    names = ", ".join(limits)
    if names and reason is None:
        departs = "depart" if "," in names else "departs"
        yield Remark("error", f"{manifest.place(*place)}: {names} {departs} from the rule without a 'reason'; add one")


def _empty_profiles(manifest: Manifest) -> Iterator[Remark]:
    present = {source_kind(row.source) for row in manifest.models.values()}
    for name, profile in manifest.profiles.items():
        where = manifest.place("profiles", name)
        rows = [row for row in manifest.models.values() if source_kind(row.source) in profile.sources]
        if not present & set(profile.sources):
            yield Remark(
                "error",
                f"{where}: profile {name} plans nothing, no row has a source of "
                f"kind {', '.join(profile.sources) or '(none)'}",
            )
        elif not any(profile.axes.has(cell) for row in rows for cell in row.axes.over(manifest.axes).cells()):
            yield Remark("error", f"{where}: profile {name} plans nothing, no row has a case with these axes")


def _duplicate_checkpoints(manifest: Manifest) -> Iterator[Remark]:
    """Yield rows that ask the same of the same checkpoint as an earlier row."""
    seen: dict[str, str] = {}
    for name, row in manifest.models.items():
        asked = row.model_dump_json(include={"task", "source", "inputs", "axes"})
        if asked in seen:
            yield Remark(
                "error",
                f"{manifest.place('models', name)}: {name} asks the same of the same checkpoint as "
                f"{seen[asked]}; remove one",
            )
        seen.setdefault(asked, name)
