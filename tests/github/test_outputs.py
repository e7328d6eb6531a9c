from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.github import append_summary, set_outputs


def read_outputs(path: Path) -> dict[str, str]:
    """What GitHub reads from the file: ``name<<end``, lines, ``end``."""
    lines = iter(path.read_text().splitlines())
    found = {}
    for line in lines:
        name, end = line.split("<<")
        value = []
        while (inner := next(lines)) != end:
            value.append(inner)
        found[name] = "\n".join(value)
    return found


def test_outputs_survive_whatever_is_in_them(tmp_path: Path) -> None:
    path = tmp_path / "outputs"
    set_outputs(path, {"matrix": '{"include":[]}', "hostile": "a\nEOF\nmatrix=[]\nend-0"})
    set_outputs(path, {"later": "1"})
    assert read_outputs(path) == {
        "matrix": '{"include":[]}',
        "hostile": "a\nEOF\nmatrix=[]\nend-0",
        "later": "1",
    }
    ends = re.findall(r"<<(\S+)", path.read_text())
    assert len(set(ends)) == 3


def test_outputs_beyond_the_limit_are_refused_by_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "outputs"
    with pytest.raises(UsageError, match="1048578 bytes, more than 1048576"):
        set_outputs(path, {"é": "é" * (1 << 19)})  # two bytes each
    assert not path.exists()


def test_a_summary_is_cut_by_bytes_at_the_end_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    append_summary(path, "short\n", limit=100)
    append_summary(path, "ä" * 20 + "\n" + "ö" * 200 + "\n", limit=100)
    text = path.read_text(encoding="utf-8")
    assert text == "short\n" + "ä" * 20 + "\n\nCut here: the rest is in the artifacts.\n"
    assert path.stat().st_size <= 100
    append_summary(path, "nothing fits here any more\n" * 9, limit=100)
    assert path.read_text(encoding="utf-8") == text
