from pathlib import Path

from harness.checkpoints import locks
from harness.checkpoints.hub_cache import forget, snapshot_folder, sweep


def test_partial_files_go_unless_their_download_runs(tmp_path: Path) -> None:
    blobs = tmp_path / "models--acme--tiny" / "blobs"
    blobs.mkdir(parents=True)
    for name in ("aa.01234567.incomplete", "bb.01234567.incomplete", "cc"):
        (blobs / name).write_bytes(b"12345")
    with locks.exclusive(tmp_path / ".locks" / "models--acme--tiny" / "bb.lock", timeout=1):
        assert sweep(tmp_path, "acme/tiny") == 5
    assert sorted(path.name for path in blobs.iterdir()) == ["bb.01234567.incomplete", "cc"]
    assert sweep(tmp_path, "acme/none") == 0


def test_forget_deletes_the_blob_behind_the_link_and_nothing_outside(tmp_path: Path) -> None:
    snapshot = snapshot_folder(tmp_path, "acme/tiny", "0" * 40)
    snapshot.mkdir(parents=True)
    blob = snapshot.parents[1] / "blobs" / "aa"
    blob.parent.mkdir()
    outside = tmp_path / "outside"
    for path in (blob, outside):
        path.write_bytes(b"1")
    (snapshot / "inside.json").symlink_to(blob)
    (snapshot / "outside.json").symlink_to(outside)
    for name in ("inside.json", "outside.json", "never.json"):
        forget(snapshot, name)
    assert (list(snapshot.iterdir()), blob.exists(), outside.exists()) == ([], False, True)
