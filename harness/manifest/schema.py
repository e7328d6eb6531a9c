"""Looking up keys and descriptions in the JSON Schema of models.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.manifest.tree import KeyPath, Tree


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the object schemas that a schema node stands for, references and unions followed."""
    if "$ref" in node:
        return _resolve(schema, schema["$defs"][node["$ref"].rpartition("/")[2]])
    branches = node.get("anyOf") or node.get("oneOf")
    if branches:
        return [found for branch in branches for found in _resolve(schema, branch)]
    return [node]


def walk(schema: dict[str, Any], path: KeyPath, tree: Tree) -> list[dict[str, Any]]:
    """Return the schema nodes at a path; of a union the branches that the value's keys point to."""
    nodes = [schema]
    for depth, part in enumerate(path):
        nodes = [found for node in nodes for found in _step(schema, node, part)]
        value = tree.get(path[: depth + 1])
        if isinstance(value, Mapping):
            nodes = [n for n in nodes if n.get("required", [""])[0] in value] or nodes
    return nodes


def _step(schema: dict[str, Any], node: dict[str, Any], part: str | int) -> list[dict[str, Any]]:
    if isinstance(part, int):
        inner = node.get("items")
    else:
        inner = node.get("properties", {}).get(part) or node.get("additionalProperties")
    if not isinstance(inner, dict):
        inner = next(iter(node.get("patternProperties", {}).values()), None)
    return _resolve(schema, inner) if inner else []


def properties(schema: dict[str, Any], path: KeyPath, tree: Tree) -> dict[str, None]:
    """Return the keys that a place can have, in the schema's order."""
    return {key: None for node in walk(schema, path, tree) for key in node.get("properties", {})}


def choices(schema: dict[str, Any], path: KeyPath, tree: Tree) -> list[str]:
    """Return the words that a field is narrowed to; empty when the schema names none."""
    return [str(word) for word in _field(schema, path, tree).get("enum", ())]


def description(schema: dict[str, Any], path: KeyPath, tree: Tree) -> str:
    """Return what the records' docstrings say of a field, as a remedy."""
    text = str(_field(schema, path, tree).get("description", ""))
    return " ".join(text.split()).replace("``", "'")


def _field(schema: dict[str, Any], path: KeyPath, tree: Tree) -> dict[str, Any]:
    for node in walk(schema, path[:-1], tree) if path else ():
        inner = node.get("items") if isinstance(path[-1], int) else node.get("properties", {}).get(path[-1])
        field: dict[str, Any] = inner or {}
        if field:
            return field
    return {}


def records(schema: dict[str, Any]) -> dict[str, list[str]]:
    """Return the keys of each record by the record's place in the file, the likeliest place first."""
    places = {
        "ModelRow": "a model",
        "HubSource": "a hub source",
        "WheelSource": "a wheel source",
        "FolderSource": "a folder source",
        "Axes": "axes",
        "Inputs": "inputs",
        "Tolerance": "tolerance",
        "Timeouts": "timeouts",
        "Expectation": "an entry of expect",
        "Profile": "a profile",
        "Requirement": "an entry of require",
        "Waiver": "an entry of waivers",
    }
    found = {place: schema["$defs"].get(name, {}) for name, place in places.items()}
    return {place: list(record.get("properties", {})) for place, record in {**found, "the top level": schema}.items()}
