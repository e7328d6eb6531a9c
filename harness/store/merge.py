"""Shards of one plan -> one run directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from harness.errors import StoredDataError, UsageError
from harness.records import NO_RESULT, CaseResult, Run
from harness.store.layout import RUN_FILE
from harness.store.read import StoredRun, read_run
from harness.store.write import RunWriter


def merge(directories: list[Path], out: Path) -> StoredRun:
    """Union of shards in a new run directory, with their logs, tensors and reproducers.

    Planned cases without a result stay missing and keep the run unfinished. A case that one shard could
    not run takes the result of another that could. Raises StoredDataError, naming every case, for results that
    contradict one another, and for shards of different manifests or software. What was damaged in a shard is
    among the problems, since a result that nobody can read leaves an earlier one of its case in its place.
    """
    if not directories:
        raise UsageError("merge: no run directory given.")
    if (out / RUN_FILE).exists():
        raise UsageError(f"{out}: holds a run already; name a new directory for the merged one.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        what = "is not empty" if out.is_dir() else "is a file"
        raise UsageError(f"{out}: {what}; name a new directory for the merged run.")
    runs = [read_run(directory) for directory in directories]
    _require_one(runs, "manifests", lambda run: run.manifest_digest[:12])
    _require_one(runs, "software", lambda run: ", ".join(f"{p.name} {p.version}" for p in run.environment.packages))
    _require_one(runs, "modes of expectations", lambda run: run.expectations)
    results, home = _union(runs)
    plan = {case.id: case for stored in runs for case in stored.run.plan}
    first = min(runs, key=lambda stored: stored.run.run_id).run
    merged = first.model_copy(
        update={"plan": tuple(plan[key] for key in sorted(plan)), "finished": None, "totals": {}, "exit_status": None}
    )
    writer = RunWriter(out, merged)
    _bring_files(runs, home, results, out)
    for key in sorted(results):
        writer.append(results[key])
    ended = [stored.run.finished for stored in runs]
    if all(ended) and set(plan) <= set(results):
        statuses = [stored.run.exit_status or 0 for stored in runs]
        writer.finish(max(when for when in ended if when), max(statuses))
    else:
        writer.close()
    damage = tuple(f"{stored.directory}: {problem}" for stored in runs for problem in stored.problems)
    merged_run = read_run(out)
    return replace(merged_run, problems=(*damage, *merged_run.problems))


def _bring_files(
    runs: Iterable[StoredRun], home: Mapping[str, Path], results: Mapping[str, CaseResult], out: Path
) -> None:
    """Copy what lies in folders of the shards. Of two logs of one name that of the result that holds is kept.

    A run directory holds no links, and results name files inside it: what does not is not the shard's to give.
    """
    for stored in runs:
        for folder in [path for path in stored.directory.iterdir() if path.is_dir() and not path.is_symlink()]:
            shutil.copytree(folder, out / folder.name, dirs_exist_ok=True, ignore=_links)
    for key, result in results.items():
        for log in {result.log, *(attempt.log for attempt in result.attempts)} - {None}:
            source, target = home[key] / str(log), out / str(log)
            if _is_inside(source, home[key]) and _is_inside(target, out) and source.is_file():
                shutil.copyfile(source, target)


def _links(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if Path(folder, name).is_symlink()}


def _is_inside(path: Path, folder: Path) -> bool:
    """Tell whether a path stays in a folder, links followed."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _union(runs: Iterable[StoredRun]) -> tuple[dict[str, CaseResult], dict[str, Path]]:
    """The result that holds of each case, and the directory that it comes from."""
    results: dict[str, CaseResult] = {}
    home: dict[str, Path] = {}
    conflicts = []
    for stored in runs:
        for result in stored.results:
            key = result.case.id
            other = results.get(key)
            if other is None or (other.outcome.kind in NO_RESULT and result.outcome.kind not in NO_RESULT):
                results[key], home[key] = result, stored.directory
            elif result.outcome.kind not in NO_RESULT and other != result:
                conflicts.append(f"{key}: {home[key]} and {stored.directory} have different results")
    if conflicts:
        raise StoredDataError(
            "\n".join(conflicts) + "\nShards must not overlap: run them with the same manifest and --shard I/N."
        )
    return results, home


def _require_one(runs: Iterable[StoredRun], what: str, fact: Callable[[Run], str]) -> None:
    told = {fact(stored.run): stored.directory for stored in runs}
    if len(told) > 1:
        different = "; ".join(f"{directory}: {text or 'not told'}" for text, directory in told.items())
        raise StoredDataError(f"these shards ran different {what} and are no parts of one run: {different}")
