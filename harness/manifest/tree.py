"""YAML with the line of each key: plain values, no tags, no duplicate keys, bounded in size and depth."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from harness.errors import ManifestError

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top level down."""
MAX_BYTES = 8 << 20
"""Ten thousand rows take about 3 MB."""
MAX_DEPTH = 24
MAX_VALUES = 1_000_000
"""Values after aliases are written out: the limit that stops nested anchors from multiplying."""

_INTEGER = re.compile(r"[-+]?[0-9]{1,300}|0x[0-9a-fA-F]{1,250}|0o[0-7]{1,300}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}


@dataclass
class Node:
    """A YAML value with its place; `items` of a mapping are (key node, value node) pairs."""

    kind: str
    """``scalar``, ``list``, ``mapping`` or ``alias``."""
    line: int
    value: Any = None
    text: str = ""
    items: list[Any] = field(default_factory=list)


@dataclass
class Tree:
    """A file's plain data, with the line of each key and list item by its path."""

    file: str
    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    texts: dict[KeyPath, str] = field(default_factory=dict)
    """Numbers and the like as they are written."""

    def get(self, path: KeyPath) -> Any:
        """Return the value at a path; None where there is none."""
        value = self.data
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def source_text(self, path: KeyPath) -> str:
        """Return a scalar as it is written in the file."""
        return self.texts.get(path, str(self.get(path)))

    def locate(self, loc: KeyPath) -> KeyPath:
        """Return the path in the file of a schema location, which also names branches of unions.

        A key that is missing in the file is not part of the path.
        """
        path: KeyPath = ()
        for part in loc:
            if (*path, part) in self.lines:
                path = (*path, part)
        return path

    def place(self, path: KeyPath) -> str:
        """Return ``file:line`` of a path."""
        return f"{self.file}:{self.lines.get(path, 1)}"


def read_tree(path: Path) -> Tree:
    """Return a YAML file's data and lines. Raises ManifestError when it is no YAML mapping."""
    file = path.name
    try:
        nodes = _Composer(file)
        root = nodes.compose(_events(_read_text(path, file)))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        what = " ".join(str(error.problem or error.context or "cannot be read").split())
        raise ManifestError([f"{file}:{line}: not YAML: {what}"]) from None
    except (YAMLError, ValueError) as error:
        what = " ".join(str(error).split())[:200]
        raise ManifestError([f"{file}:1: not YAML: {what}"]) from None
    tree = Tree(file, problems=nodes.problems)
    if root is None or (root.kind == "scalar" and root.value is None):
        raise ManifestError([f"{file}:1: the file is empty; begin with 'version: 1'"])
    if root.kind != "mapping":
        raise ManifestError([f"{file}:{root.line}: the file holds no mapping; begin with 'version: 1'"])
    tree.data = _Expander(tree, nodes.anchors).expand(root, ())
    return tree


def _read_text(path: Path, file: str) -> str:
    try:
        if path.is_dir():
            raise ManifestError([f"{file}:1: {path} is a directory; name a YAML file in it"])
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        above = (folder / file for folder in path.absolute().parent.parents)
        there = next((os.path.relpath(other) for other in above if other.is_file()), None)
        remedy = f"there is {there}, name that" if there else "name a file that does, or create it"
        raise ManifestError([f"{file}:1: {path} does not exist; {remedy}"]) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ManifestError([f"{file}:1: {str(path)!r} cannot be read: {why}"]) from None
    if len(data) > MAX_BYTES:
        raise ManifestError([f"{file}:1: the file is larger than {MAX_BYTES >> 20} MiB; split it"])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise ManifestError(
            [f"{file}:{line}: not UTF-8: byte 0x{byte:02x} cannot be decoded; save the file as UTF-8"]
        ) from None


def _events(text: str) -> Iterator[Event]:
    yield from YAML(typ="safe", pure=True).parse(text)


class _Composer:
    """Builds nodes from YAML events without recursion, so that depth is checked and not suffered."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[str] = []
        self.anchors: dict[str, Node] = {}
        self.documents = 0

    def compose(self, events: Iterator[Event]) -> Node | None:
        root: Node | None = None
        open_nodes: list[Node] = []
        for event in events:
            if isinstance(event, DocumentStartEvent):
                self._one_document(event)
            node = self._node(event)
            if node is not None:
                if open_nodes:
                    open_nodes[-1].items.append(node)
                root = root or node
            if isinstance(event, MappingStartEvent | SequenceStartEvent) and node is not None:
                open_nodes.append(node)
                if len(open_nodes) > MAX_DEPTH:
                    raise ManifestError([f"{self.file}:{node.line}: nested more than {MAX_DEPTH} deep"])
            elif isinstance(event, MappingEndEvent | SequenceEndEvent):
                open_nodes.pop()
        return root

    def _one_document(self, event: Event) -> None:
        self.documents += 1
        if self.documents > 1:
            line = event.start_mark.line + 1
            raise ManifestError([f"{self.file}:{line}: a second document begins here; keep one"])

    def _node(self, event: Event) -> Node | None:
        if not isinstance(event, AliasEvent | ScalarEvent | MappingStartEvent | SequenceStartEvent):
            return None
        line = event.start_mark.line + 1
        if isinstance(event, AliasEvent):
            if event.anchor not in self.anchors:
                raise ManifestError([f"{self.file}:{line}: alias *{event.anchor} has no anchor before it"])
            return Node("alias", line, event.anchor)
        if event.ctag is not None:
            self.problems.append(f"{self.file}:{line}: the tag {event.tag} is not supported; remove it")
        if isinstance(event, ScalarEvent):
            value = event.value if event.style else _plain(event.value)
            if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
                self.problems.append(f"{self.file}:{line}: half a surrogate pair is no character; remove it")
                value = "".join(letter for letter in value if not "\ud800" <= letter <= "\udfff")
            node = Node("scalar", line, value, event.value)
        else:
            node = Node("mapping" if isinstance(event, MappingStartEvent) else "list", line)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node


def _plain(text: str) -> Any:
    """Return what an unquoted word means in YAML 1.2: ``no`` and ``0123`` stay what they look like."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        base = {"0x": 16, "0o": 8}.get(text[:2], 10)
        return int(text, base)
    if text.lower() in _INFINITE:
        return float(_INFINITE[text.lower()])
    return float(text) if _FLOAT.fullmatch(text) else text


class _Expander:
    """Turns nodes into plain data, aliases written out, and notes the line of each path."""

    def __init__(self, tree: Tree, anchors: dict[str, Node]) -> None:
        self.tree = tree
        self.anchors = anchors
        self.values = 0
        self.open_aliases: list[str] = []

    def expand(self, node: Node, path: KeyPath) -> Any:
        self.values += 1
        if self.values > MAX_VALUES or len(path) > MAX_DEPTH:
            raise ManifestError(
                [f"{self.tree.file}:{node.line}: aliases expand to more than can be meant; write values out"]
            )
        if node.kind == "alias":
            return self._alias(node, path)
        if node.kind == "mapping":
            return self._mapping(node, path)
        if node.kind == "list":
            self.tree.lines.update({(*path, i): item.line for i, item in enumerate(node.items)})
            return [self.expand(item, (*path, i)) for i, item in enumerate(node.items)]
        self.tree.texts[path] = node.text
        return node.value

    def _alias(self, node: Node, path: KeyPath) -> Any:
        if node.value in self.open_aliases:
            raise ManifestError([f"{self.tree.file}:{node.line}: alias *{node.value} holds itself"])
        self.open_aliases.append(node.value)
        data = self.expand(self.anchors[node.value], path)
        self.open_aliases.pop()
        return data

    def _mapping(self, node: Node, path: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        folded: dict[str, str] = {}
        for key, value in zip(node.items[::2], node.items[1::2], strict=True):
            name = self._key(key, path)
            place = (*path, name)
            twin = folded.setdefault(name.casefold(), name)
            if place in self.tree.lines and name in data:
                self._refuse(key, f"{name!r} is given twice in {dotted(path)}", place)
                continue
            if twin != name:
                self._refuse(key, f"{name!r} differs from {twin!r} only in case", (*path, twin))
            self.tree.lines[place] = key.line
            data[name] = self.expand(value, place)
        return data

    def _key(self, key: Node, path: KeyPath) -> str:
        if key.kind == "scalar":
            return key.value if isinstance(key.value, str) else key.text
        self.tree.problems.append(f"{self.tree.file}:{key.line}: a key in {dotted(path)} is no word; keys are words")
        return f"<{key.kind}>"

    def _refuse(self, key: Node, what: str, first: KeyPath) -> None:
        line = self.tree.lines[first]
        self.tree.problems.append(f"{self.tree.file}:{key.line}: {what} (first in line {line}); keep one or rename it")


def dotted(path: KeyPath) -> str:
    """Return a path as people write it, in one line: a key that does not print is quoted."""
    return ".".join(_visible(str(part)) for part in path) or "the top level"


def _visible(part: str) -> str:
    return part if part.isprintable() else repr(part)
