import json
from pathlib import Path

import pytest

from harness.checkpoints.hashing import Stamps, digest_of, git_sha1_of, sha256_of, write_atomically
from harness.records import FileFact

HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"


def test_known_hashes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    assert sha256_of(tmp_path / "a") == HELLO
    assert git_sha1_of(tmp_path / "a") == "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"  # git hash-object


def test_digest_covers_names_and_contents_in_any_order() -> None:
    a, b = FileFact(name="a", size=1, sha256="1" * 64), FileFact(name="b", size=1, sha256="2" * 64)
    assert digest_of([a, b]) == digest_of([b, a])
    assert len({digest_of([a]), digest_of([b]), digest_of([a, b]), digest_of([])}) == 4


def test_unchanged_files_are_not_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_bytes(b"hello")
    stamps = Stamps(tmp_path / "stamps.json")
    assert stamps.facts(folder, ["a"]) == (FileFact(name="a", size=5, sha256=HELLO),)
    rows = json.loads(stamps.path.read_text())
    rows["a"][4] = "f" * 64
    stamps.path.write_text(json.dumps(rows))
    assert stamps.facts(folder, ["a"])[0].sha256 == "f" * 64, "the remembered hash was used"
    assert stamps.facts(folder, ["a"], refresh=True)[0].sha256 == HELLO
    (folder / "a").write_bytes(b"hellO")
    assert stamps.facts(folder, ["a"])[0].sha256 == sha256_of(folder / "a")


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', "\0"])
def test_damaged_stamps_cost_a_rehash(tmp_path: Path, content: str) -> None:
    (tmp_path / "a").write_bytes(b"hello")
    (tmp_path / "stamps.json").write_text(content)
    assert Stamps(tmp_path / "stamps.json").facts(tmp_path, ["a"])[0].sha256 == HELLO


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
