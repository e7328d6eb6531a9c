"""Recorded durations steer an order and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.executors import durations, read_durations, record_durations


def test_runs_add_up(tmp_path: Path) -> None:
    path = tmp_path / "new" / "durations.json"
    record_durations(path, {"a": 1.234, "b": 2})
    record_durations(path, {"b": 3, "c": 4})
    assert read_durations(path) == {"a": 1.23, "b": 3.0, "c": 4.0}
    assert sorted(p.name for p in path.parent.iterdir()) == [".durations.json.lock", "durations.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"a": "soon", "b": -1, "c": 1e400}'])
def test_a_damaged_record_is_no_record(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "durations.json"
    path.write_bytes(content)
    assert read_durations(path) == {}
    record_durations(path, {"a": 1})
    assert read_durations(path) == {"a": 1.0}


def test_the_latest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "LIMIT", 2)
    path = tmp_path / "durations.json"
    record_durations(path, {"old": 1, "older": 1})
    record_durations(path, {"new": 2})
    assert set(read_durations(path)) == {"new", "old"}


def test_a_directory_that_cannot_be_written_costs_the_record_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    record_durations(tmp_path / "file" / "durations.json", {"a": 1})
    assert read_durations(tmp_path / "file" / "durations.json") == {}
