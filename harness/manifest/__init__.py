"""The only reader of models.yaml: parses, refuses what it does not know, and points at file and line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from harness.errors import ManifestError
from harness.manifest.explain import explain
from harness.manifest.lint import Remark, lint
from harness.manifest.tree import Tree, read_tree
from harness.records import NATURAL, Check, Inputs, Manifest, ModelRow, Policy, Record, Task

__all__ = ["Remark", "json_schema", "lint", "load", "load_policy"]

CAUSAL_ONLY = (Check.SAMPLING, Check.LEFT_PADDING)
"""Checks of models that go on from their last token."""

Document = TypeVar("Document", bound=Record)


def load(path: Path) -> Manifest:
    """Return the manifest in a file. Raises ManifestError with all problems, each with file and line."""
    manifest, tree, problems = _read(path, Manifest, json_schema)
    if manifest is not None:
        manifest = manifest.located(tree.file, tree.lines)
        problems += _gaps(manifest)
    if problems or manifest is None:
        raise ManifestError(sorted(set(problems), key=_by_line))
    return manifest


def load_policy(path: Path) -> Policy:
    """Return the release policy in a file. Raises ManifestError as `load` does."""
    policy, _, problems = _read(path, Policy, Policy.model_json_schema)
    if problems or policy is None:
        raise ManifestError(sorted(set(problems), key=_by_line))
    return policy


def _read(
    path: Path, record: type[Document], schema: Callable[[], dict[str, Any]]
) -> tuple[Document | None, Tree, list[str]]:
    tree = read_tree(path)
    try:
        # Strict JSON takes lists for tuples and words for enumerations, and no "1" for 1.
        document: Document = record.model_validate_json(json.dumps(tree.data), strict=True)
    except ValidationError as error:
        return None, tree, [*tree.problems, *explain(error, tree, schema())]
    return document, tree, list(tree.problems)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of models.yaml, for editors; descriptions are the records' docstrings."""
    schema = Manifest.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "models.yaml: the matrix of the conformance harness"
    return schema


def _gaps(manifest: Manifest) -> Iterator[str]:
    """Yield what the schema cannot see in a single place."""
    for task, asked in manifest.defaults.inputs.items():
        yield from _foreign(asked, task, manifest, "defaults", "inputs", str(task))
    for name, row in manifest.models.items():
        if row.inputs is not None:
            yield from _foreign(row.inputs, row.task, manifest, "models", name, "inputs")
        yield from _checks(row, manifest, name)
        inputs = row.inputs or manifest.defaults.inputs.get(row.task)
        if inputs is not None and row.task in manifest.defaults.inputs:
            inputs = inputs.over(manifest.defaults.inputs[row.task])
        where = manifest.place("models", name)
        if inputs is None or not (inputs.texts or inputs.ids):
            yield (
                f"{where}: models.{name} has nothing to ask: give 'inputs' with 'texts' or 'ids' there or "
                f"under defaults.inputs.{row.task}"
            )
        elif row.task == "masked-lm" and any("[MASK]" not in text for text in inputs.texts):
            yield f"{where}: models.{name}: a masked-lm text has no [MASK]; say which token is asked for"


def _foreign(inputs: Inputs, task: Task, manifest: Manifest, *path: str) -> Iterator[str]:
    """Yield inputs that belong to another task and would be passed over."""
    for key, owner in (
        ("pooling", Task.EMBEDDING),
        ("decode_steps", Task.CAUSAL_LM),
        ("sampling", Task.CAUSAL_LM),
    ):
        if getattr(inputs, key) is not None and task is not owner:
            where, name = manifest.place(*path, key), ".".join((*path, key))
            yield f"{where}: {name} means nothing to {task}, only to {owner}; remove it"


def _checks(row: ModelRow, manifest: Manifest, name: str) -> Iterator[str]:
    """Yield checks that a row's task does not have, or that its shapes leave without a case."""
    axes = row.axes.over(manifest.axes)
    where = manifest.place("models", name)
    for check in axes.check:
        if row.task is not Task.CAUSAL_LM and check in CAUSAL_ONLY:
            yield f"{where}: models.{name}: the check {check} means nothing to {row.task}; remove it from its axes"
        elif check.sets_shape and NATURAL not in axes.shape:
            yield f"{where}: models.{name}: the check {check} sets the shape itself; add 'natural' to the row's shapes"


def _by_line(problem: str) -> tuple[int, str]:
    parts = problem.split(":", 2)
    return (int(parts[1]) if len(parts) > 2 and parts[1].isdecimal() else 0, problem)
