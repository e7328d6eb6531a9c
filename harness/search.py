"""The commands ``localize`` and ``repro``: one case through the pipeline's search."""

from __future__ import annotations

import difflib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness import environment, manifest, matrix, store
from harness.errors import UsageError
from harness.options import default_cache, parse_drill
from harness.pipeline import Pipeline
from harness.records import Case, Localization, LocalizeDone
from harness.settings import Settings

WORST = 8
"""Stretches that the text lists beside the first wrong one."""


@dataclass(frozen=True)
class Request:
    """What the command line says."""

    manifest: Path
    run_directory: Path | None
    cache: Path | None
    drills: tuple[str, ...]
    seconds: float


def localize(name: str, request: Request, reproducer: Path | None = None) -> LocalizeDone:
    """Search a case by its id. Raises UsageError for an id that is not there or a case that cannot run."""
    if request.cache is not None and request.cache.exists() and not request.cache.is_dir():
        raise UsageError(f"--cache {request.cache}: is a file; name a folder")
    case = _find(name, request)
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        settings = Settings(
            manifest_path=request.manifest.absolute(),
            cache=request.cache.absolute() if request.cache else default_cache(),
            run_directory=request.run_directory.absolute() if request.run_directory else Path(folder),
            threads=environment.cores(),
            drills=tuple(parse_drill(text) for text in request.drills),
        )
        (settings.run_directory / "logs").mkdir(parents=True, exist_ok=True)
        pipeline = Pipeline(settings)
        try:
            return pipeline.localize(case, request.seconds, reproducer)
        finally:
            pipeline.close()


def _find(name: str, request: Request) -> Case:
    """The case of that id, in a run or in the manifest."""
    if request.run_directory is not None:
        cases, place = store.read_plan(request.run_directory).plan, str(request.run_directory)
    else:
        cases, place = matrix.plan(manifest.load(request.manifest)), str(request.manifest)
    found = next((case for case in cases if case.id == name), None)
    if found is None:
        near = difflib.get_close_matches(name, [case.id for case in cases], n=1)
        hint = f"; did you mean {near[0]}?" if near else "; see `conformance list`"
        raise UsageError(f"{place} has no case {name}{hint}")
    return found


def render(found: Localization) -> str:
    """A localisation for people."""
    lines = [f"{found.case}: {found.sentence}"]
    if found.cause:
        lines.append(f"cause: {found.cause}")
    for place, offset in zip(found.op.operands if found.op else (), found.op.offsets if found.op else (), strict=True):
        lines.append(f"  operand {place.dtype}{list(place.shape)} strides {list(place.strides)} offset {offset}")
    known = [error for error in found.evidence.errors if error.relative_l2 is not None]
    worst = sorted(known, key=lambda error: -(error.relative_l2 or 0.0))[:WORST]
    if worst:
        lines.append(
            f"{len(found.evidence.errors)} stretches compared, {found.modules_wrong} out of proportion; worst:"
        )
    for error in worst:
        control = "" if error.control is None else f"  control {error.control:.2e}"
        lines.append(f"  {error.relative_l2:.2e}{control}  {error.name}{f' call {error.call}' if error.call else ''}")
    return "\n".join(lines)
