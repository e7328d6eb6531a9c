"""Text from models and devices made safe to show: visible, bounded, without machine paths."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_PATH = re.compile(r"/(?<![\w/.<\\-]/)([\w.+@=~%-]+(?:/[\w.+@=~%-]+)+)/?")
"""The look-behind follows the slash, so that the search skips to slashes."""
_KEEP_FROM = ("site-packages", "dist-packages")


def visible(text: str) -> str:
    """The text with control, direction and non-XML characters as ``\\x1b`` escapes.

    Newlines and tabs stay. A carriage return becomes visible too: XML parsers would turn it into a newline.
    """
    if text.isprintable():
        return text
    return _UNPRINTABLE.sub(lambda found: _escape(found.group()), text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def is_clean_json(text: str) -> bool:
    """Whether JSON text surely holds nothing to make visible, no markup and no machine path."""
    suspicious = ("<", ">", "&", "\x7f", "\\u", "\\r", "\\b", "\\f", "file:")
    if any(mark in text for mark in suspicious) or _PATH.search(text):
        return False
    return text.isascii() or not _UNPRINTABLE.search(text)


def without_machine_paths(text: str) -> str:
    """The text with absolute paths cut to their end: ``/home/x/.cache/hub/a.bin`` is ``…/hub/a.bin``."""
    if "/" not in text:
        return text
    return _PATH.sub(lambda found: _path_end(found.group(1)), text.replace("file:///", "/"))


def _path_end(path: str) -> str:
    parts = path.strip("/").split("/")
    for marker in _KEEP_FROM:
        if marker in parts:
            return "…/" + "/".join(parts[parts.index(marker) :])
    return "…/" + "/".join(parts[-2:] if len(parts) > 2 else parts[-1:])


def cut(text: str, limit: int) -> str:
    """The text, or its head and tail with a note of what lies between; about `limit` characters."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    left_out = len(text) - limit
    return f"{text[:head]}\n[… {left_out:,} characters left out …]\n{text[-tail:]}"


def shown(text: str, limit: int = 4000) -> str:
    """The text ready for a page or a file: cut, visible, without machine paths."""
    return visible(without_machine_paths(cut(text, limit)))


def one_line(text: str, limit: int) -> str:
    """The text on one line, at most `limit` characters, an ellipsis where it was cut."""
    line = visible(without_machine_paths(" ".join(text.split())))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def file_name(identifier: str, suffix: str) -> str:
    """A file name that any file system and URL takes, unique by the identifier's hash."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", identifier).strip("-.")[:80]
    digest = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{plain}-{digest}{suffix}"


def excerpt(path: Path, limit: int) -> str:
    """Head and tail of a text file of any size, about `limit` characters, ready to show."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= limit:
            return shown(stream.read().decode("utf-8", "replace"), limit)
        head = stream.read(limit * 2 // 3)
        stream.seek(size - limit // 3)
        tail = stream.read()
    note = f"\n[… {size - len(head) - len(tail):,} bytes left out; the whole log is linked …]\n"
    text = head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")
    return visible(without_machine_paths(text))
