"""From what pydantic says to one sentence a person can act on, with file and line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from harness.manifest.schema import choices, description, properties, records
from harness.manifest.tree import KeyPath, Tree, dotted


def explain(error: ValidationError, tree: Tree, schema: dict[str, Any]) -> Iterator[str]:
    """Yield one line per place that the schema refuses."""
    places: dict[KeyPath, list[ErrorDetails]] = {}
    for details in error.errors(include_url=False):
        places.setdefault(tree.locate(details["loc"]), []).append(details)
    for path, found in places.items():
        if found[0]["type"] == "too_short" and tree.get(path):
            continue  # its items were refused, each with a line of its own
        for details in _distinct(found):
            yield f"{tree.place(path)}: {_sentence(path, details, tree, schema)}"


def _distinct(found: list[ErrorDetails]) -> list[ErrorDetails]:
    """Return the errors of one place without those of the other branches of a union."""
    missing = [details for details in found if details["type"] == "missing"]
    return missing or found[:1]


def _sentence(path: KeyPath, details: ErrorDetails, tree: Tree, schema: dict[str, Any]) -> str:
    kind, name, value = details["type"], dotted(path), tree.get(path)
    about = description(schema, path, tree)
    if "[key]" in details["loc"]:
        return f"{path[-1]!r} is no valid name in {dotted(path[:-1])}: {_key_rule(details)}"
    match kind:
        case "extra_forbidden":
            return _unknown_key(path, tree, schema)
        case "missing":
            missing = str(details["loc"][-1])
            return _join(f"{name} lacks {missing!r}", description(schema, (*path, missing), tree))
        case "source_kind":
            return f"{name}: {details['msg']}"
        case "enum" | "literal_error":
            words = choices(schema, path, tree) or _expected(details)
            if path == ("version",) and isinstance(value, int):
                return f"version {value} of this file is not known, only {', '.join(words)}; upgrade the harness"
            if str(value) in words:
                return f"{name} is {tree.source_text(path)!r} in quotes; write it without"
            return f"{name} is {_shown(value)}, not one of {', '.join(words)}{_near(value, words)}"
        case "string_type" if isinstance(value, int | float | None):
            written = tree.source_text(path)
            what = f"is {written} without quotes, which YAML reads as {_noun(value)}; quote it"
            return _join(f"{name} {what}" if written else f"{name} is empty", about)
        case "string_pattern_mismatch":
            form = details["ctx"]["pattern"].removeprefix("^").removesuffix("$")
            return _join(f"{name} is {_shown(value)}, which does not have the form {form}", about)
        case "value_error":
            return f"{name}: {details['msg'].removeprefix('Value error, ')}"
        case "too_short":
            return f"{name} is empty; give at least one entry"
    return _join(f"{name} is {_shown(value)}: {_plain_words(details['msg'])}", about)


def _unknown_key(path: KeyPath, tree: Tree, schema: dict[str, Any]) -> str:
    parent, key = path[:-1], str(path[-1])
    known = list(properties(schema, parent, tree))
    hint = _near(key, known)
    if not hint:
        elsewhere: dict[str, str] = {}
        for holder, names in records(schema).items():
            for name in names:
                elsewhere.setdefault(name, holder)
        match = difflib.get_close_matches(key, elsewhere, n=1, cutoff=0.7)
        if match:
            hint = f"; did you mean {match[0]!r}, which belongs to {elsewhere[match[0]]}?"
    return f"unknown key {key!r} in {dotted(parent)}{hint or '.'} Known: {', '.join(known)}"


def _expected(details: ErrorDetails) -> list[str]:
    expected = str(details["ctx"]["expected"]).replace(" or ", ", ")
    return [word.strip().strip("'") for word in expected.split(", ")]


def _near(word: object, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return f"; did you mean {match[0]!r}?" if match else ""


def _key_rule(details: ErrorDetails) -> str:
    if details["type"] in ("enum", "literal_error"):
        words = _expected(details)
        return f"it is one of {', '.join(words)}{_near(details['input'], words)}"
    if details["type"] == "string_too_long":
        return f"it may have {details['ctx']['max_length']} characters at most"
    return "use lower-case letters, digits, '.', '_' and '-', a letter or digit first"


def _plain_words(message: str) -> str:
    for theirs, ours in (
        ("Input should", "it should"),
        ("String should", "it should"),
        ("a valid array", "a list"),
        ("an object", "a mapping"),
        ("a valid integer", "an integer"),
        ("a valid ", "a "),
    ):
        message = message.replace(theirs, ours)
    return message


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = "empty" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _noun(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "nothing" if value is None else "a number"


def _join(problem: str, remedy: str) -> str:
    return f"{problem}. {remedy}" if remedy else problem


def _dotted(path: KeyPath) -> str:
    return ".".join(str(part) for part in path) or "the top level"
