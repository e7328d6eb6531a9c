"""Text is visible, bounded, and holds no machine path."""

from __future__ import annotations

import re

import pytest

from harness.report.text import cut, excerpt, file_name, one_line, shown, visible, without_machine_paths


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ttab\nline", "plain\ttab\nline"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\x00b\x12c\rd", "a\\x00b\\x12c\\x0dd"),
        ("\ud800\ufffe", "\\ud800\\ufffe"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("ünïcödé 模型 🔥 <Tensor at 0x1>", "ünïcödé 模型 🔥 <Tensor at 0x1>"),
    ],
)
def test_unprintable_characters_become_visible_escapes(text, expected):
    assert visible(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ci/.cache/hub/model.bin: gone", "…/hub/model.bin: gone"),
        (
            'File "/opt/v/lib/python3.11/site-packages/torch/nn/x.py", line 3',
            'File "…/site-packages/torch/nn/x.py", line 3',
        ),
        ("file:///root/a/b/c.txt", "…/b/c.txt"),
        ("HF_HOME=/root/.cache", "HF_HOME=…/.cache"),
        ("folder:/data/weights/x", "folder:…/weights/x"),
        (
            "https://github.com/torch-spyre/torch-spyre/issues/1781",
            "https://github.com/torch-spyre/torch-spyre/issues/1781",
        ),
        ("granite/causal-lm/spyre-eager-float16 and/or q/k/v", "granite/causal-lm/spyre-eager-float16 and/or q/k/v"),
        ("../../etc/passwd", "../../etc/passwd"),
    ],
)
def test_absolute_paths_are_cut_to_their_end(text, expected):
    assert without_machine_paths(text) == expected


def test_long_text_keeps_head_and_tail_with_a_size_note():
    assert cut("a" * 60 + "b" * 60, 90) == "a" * 60 + "\n[… 30 characters left out …]\n" + "b" * 30
    assert cut("short", 90) == "short"


def test_shown_applies_all_three():
    assert shown("\x00 /home/u/w/x.bin", 100) == "\\x00 …/w/x.bin"


def test_one_line_joins_and_ends_in_an_ellipsis():
    assert one_line("first\n  second\tthird", 14) == "first second …"


def test_file_names_are_plain_unique_and_bounded():
    name = file_name("../../etc/<passwd> " + "x" * 300, ".txt")
    assert re.fullmatch(r"etc-passwd-x{69}-[0-9a-f]{10}\.txt", name)
    assert file_name("a/b", "") != file_name("a-b", "")


def test_a_log_of_any_size_gives_a_bounded_excerpt(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"head\n" + b"x" * 5_000_000 + b"\ntail \xff\x00")
    text = excerpt(path, 3000)
    assert text.startswith("head\n")
    assert text.endswith("\ntail \ufffd\\x00")
    assert "[… 4,997,013 bytes left out; the whole log is linked …]" in text
    assert len(text) < 3200
