"""An Atom feed of what got worse, newest first: a reader subscribes instead of looking every morning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote
from xml.etree import ElementTree

from harness.records import Change
from harness.report.text import shown, visible

ATOM = "http://www.w3.org/2005/Atom"
"""Namespace of RFC 4287."""
ENTRIES = 200


def atom(changes: Sequence[Change], times: dict[str, datetime], now: datetime) -> str:
    """The feed of the worse changes; `times` gives each run's time. Links are relative to the feed."""
    worse = [one for one in changes if one.direction == "worse" and one.run in times]
    worse.sort(key=lambda one: times[one.run], reverse=True)
    feed = ElementTree.Element("feed", xmlns=ATOM)
    _add(feed, "title", "Spyre conformance: regressions")
    _add(feed, "id", "tag:spyre-conformance,2026:regressions")
    _add(feed, "updated", max([times[one.run] for one in worse], default=now).isoformat())
    ElementTree.SubElement(feed, "link", rel="self", href="feed.xml")
    ElementTree.SubElement(ElementTree.SubElement(feed, "author"), "name").text = "Spyre conformance"
    for one in worse[:ENTRIES]:
        entry = ElementTree.SubElement(feed, "entry")
        _add(entry, "title", f"{one.kind.value}: {one.case}")
        _add(entry, "id", f"tag:spyre-conformance,2026:{_quoted(one.run)}/{one.kind.value}/{_quoted(one.case)}")
        _add(entry, "updated", times[one.run].isoformat())
        ElementTree.SubElement(entry, "link", href=f"model.html#case={_quoted(visible(one.case))}")
        _add(entry, "summary", one.sentence)
    ElementTree.indent(feed)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(feed, encoding="unicode") + "\n"


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _add(parent: ElementTree.Element, tag: str, text: str) -> None:
    ElementTree.SubElement(parent, tag).text = shown(text, 1000)
