"""Logs stay bounded, readable and without secrets."""

from __future__ import annotations

import os
from pathlib import Path

from harness.isolate.log import clean, shorten, size
from harness.isolate.text import clip, tail


def test_a_long_log_loses_its_middle_in_place(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(writer, b"head" + b"x" * 5000 + b"tail")
    shorten(path, 60)
    text = path.read_text()
    assert text.startswith("head" + "x" * 16 + "\n[… 4,948 bytes left out …]\n")
    assert text.endswith("x" * 36 + "tail")
    os.write(writer, b" and more")
    os.close(writer)
    assert path.read_text() == text + " and more", "its process goes on at the new end"


def test_a_short_or_missing_log_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    shorten(path, 10)
    clean(path, str.upper)
    assert (path.exists(), size(path)) == (False, 0)
    path.write_bytes(b"0123456789")
    shorten(path, 10)
    assert path.read_bytes() == b"0123456789"


def test_secrets_are_taken_out_and_other_bytes_stay(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"token=SECRET \xff\n")
    clean(path, lambda text: text.replace("SECRET", "***"))
    assert path.read_text() == "token=*** \\xff\n"
    path.write_bytes(b"nothing here \xff\n")
    clean(path, lambda text: text.replace("SECRET", "***"))
    assert path.read_bytes() == b"nothing here \xff\n"


def test_clip_and_tail_keep_both_ends(tmp_path: Path) -> None:
    assert clip("short", 10) == "short"
    assert clip("a" * 10 + "b" * 10, 9) == "aaa\n[… 11 characters left out …]\nbbbbbb"
    (tmp_path / "log").write_bytes(b"one\ntwo\n\xff three\n")
    assert tail(tmp_path / "log", 12) == "two\n\\xff three"
    assert tail(tmp_path / "none", 12) == ""
