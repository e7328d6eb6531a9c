"""The only reader of models.yaml: parses, refuses what it does not know, and points at file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.errors import ManifestError
from harness.manifest.explain import explain
from harness.manifest.lint import Remark, lint
from harness.manifest.tree import read_tree
from harness.records import Manifest

__all__ = ["Remark", "json_schema", "lint", "load"]


def load(path: Path) -> Manifest:
    """Return the manifest in a file. Raises ManifestError with all problems, each with file and line."""
    tree = read_tree(path)
    problems = list(tree.problems)
    manifest = None
    try:
        # Strict JSON takes lists for tuples and words for enumerations, and no "1" for 1.
        manifest = Manifest.model_validate_json(json.dumps(tree.data), strict=True)
    except ValidationError as error:
        problems += explain(error, tree, json_schema())
    if manifest is not None:
        manifest = manifest.located(tree.file, tree.lines)
        problems += _gaps(manifest)
    if problems or manifest is None:
        raise ManifestError(sorted(set(problems), key=_by_line))
    return manifest


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of models.yaml, for editors; descriptions are the records' docstrings."""
    schema = Manifest.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "models.yaml: the matrix of the conformance harness"
    return schema


def _gaps(manifest: Manifest) -> Iterator[str]:
    """Yield what the schema cannot see in a single place."""
    for name, row in manifest.models.items():
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


def _by_line(problem: str) -> tuple[int, str]:
    parts = problem.split(":", 2)
    return (int(parts[1]) if len(parts) > 2 and parts[1].isdecimal() else 0, problem)
