"""The feed holds what got worse, newest first, as valid Atom."""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree

from harness.records import Change, ChangeKind
from harness.report.feed import atom
from tests.report.synthetic import HOSTILE_TEXT

NOW = datetime(2026, 11, 3, tzinfo=UTC)
TIMES = {"r1": datetime(2026, 11, 1, tzinfo=UTC), "r2": datetime(2026, 11, 2, tzinfo=UTC)}
A = "{http://www.w3.org/2005/Atom}"


def change(case, run, direction="worse", sentence="PASS before, FAIL now."):
    return Change(case=case, kind=ChangeKind.REGRESSED, direction=direction, run=run, since=run, sentence=sentence)


def test_entries():
    text = atom([change("m/a", "r1"), change("m/b", "r2"), change("m/c", "r2", "better")], TIMES, NOW)
    feed = ElementTree.fromstring(text)
    entries = [
        {child.tag.removeprefix(A): child.text or child.get("href") for child in one} for one in feed.iter(f"{A}entry")
    ]
    assert entries == [
        {
            "title": "regressed: m/b",
            "id": "tag:spyre-conformance,2026:r2/regressed/m%2Fb",
            "updated": "2026-11-02T00:00:00+00:00",
            "link": "model.html#case=m%2Fb",
            "summary": "PASS before, FAIL now.",
        },
        {
            "title": "regressed: m/a",
            "id": "tag:spyre-conformance,2026:r1/regressed/m%2Fa",
            "updated": "2026-11-01T00:00:00+00:00",
            "link": "model.html#case=m%2Fa",
            "summary": "PASS before, FAIL now.",
        },
    ]
    assert feed.find(f"{A}updated").text == "2026-11-02T00:00:00+00:00"


def test_an_empty_feed_and_hostile_text_parse():
    assert ElementTree.fromstring(atom([], {}, NOW)).find(f"{A}updated").text == NOW.isoformat()
    feed = ElementTree.fromstring(atom([change("<b>\ud800", "r1", sentence=HOSTILE_TEXT)], TIMES, NOW))
    assert feed.find(f"{A}entry/{A}title").text == "regressed: <b>\\ud800"
    assert feed.find(f"{A}entry/{A}summary").text.startswith("\\x1b[31mred")
