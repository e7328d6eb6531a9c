from pathlib import Path

import pytest

from harness.checkpoints import describe, resolve
from harness.checkpoints.resolve import Facts
from harness.errors import CheckpointError
from harness.records import FolderSource
from tests.checkpoints.site import write_checkpoint


def test_a_folder_is_used_where_it_lies(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "models" / "tiny")
    (folder / "notes.md").write_text("not part of it")
    source = FolderSource(folder="models/tiny")
    checkpoint = resolve(source, cache=tmp_path / "cache", base=tmp_path)
    assert checkpoint.folder == str(folder)
    assert (checkpoint.origin, checkpoint.revision) == ("folder:tiny", None)
    assert [fact.name for fact in checkpoint.files] == ["config.json", "model.safetensors", "tokenizer.json"]
    assert describe(source, cache=tmp_path / "cache", base=tmp_path) == Facts(
        parameters=600, weight_bytes=2472, stored_dtype="float32"
    )


def test_the_digest_follows_the_contents(tmp_path: Path) -> None:
    digests = {
        resolve(
            FolderSource(folder=str(write_checkpoint(tmp_path / name, value=value))),
            cache=tmp_path / "cache",
            base=Path("/"),
        ).digest
        for name, value in (("a", 1.0), ("b", 2.0), ("c", 1.0))
    }
    assert len(digests) == 2


def test_a_changed_file_changes_the_digest(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    source = FolderSource(folder="tiny")
    before = resolve(source, cache=tmp_path / "cache", base=tmp_path).digest
    (folder / "tokenizer.json").write_text("{}")
    assert resolve(source, cache=tmp_path / "cache", base=tmp_path).digest != before


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    source = FolderSource(folder="none")
    with pytest.raises(CheckpointError, match=f"folder:none: there is no directory {tmp_path / 'none'}") as caught:
        resolve(source, cache=tmp_path / "cache", base=tmp_path)
    assert caught.value.kind == "invalid_checkpoint"
    assert describe(source, cache=tmp_path / "cache", base=tmp_path) is None
