import os
import time
from pathlib import Path

import pytest

from harness.checkpoints import hold, locks, release
from harness.checkpoints.cache import RESERVE, Cache, Kept, disk_errors_as_unavailable, free_bytes
from harness.errors import CheckpointError, NoRoomError
from harness.records import Checkpoint


def keep(cache: Cache, key: str, size: int, age: float) -> Path:
    """Publish an entry of SIZE bytes that was last used AGE seconds ago."""
    with cache.workshop() as place:
        built = place / "built"
        built.mkdir()
        (built / "a.bin").write_bytes(b"x" * size)
        folder = cache.publish(built, key)
    files = cache.stamps(folder).facts(folder, ["a.bin"])
    cache.write(key, Kept(origin=f"wheel:{key}", folder=str(folder), files=files))
    os.utime(cache.record(key), (time.time() - age,) * 2)
    return folder


def checkpoint_in(folder: Path) -> Checkpoint:
    return Checkpoint(folder=str(folder), origin="wheel:a", format="pickle", digest="")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 1000)


def test_the_one_unused_for_longest_goes_first_and_no_more_than_needed(cache: Cache) -> None:
    old, older, new = keep(cache, "old", 300, 200), keep(cache, "older", 300, 300), keep(cache, "new", 300, 100)
    cache.make_room(100)
    assert [folder.exists() for folder in (older, old, new)] == [True, True, True]
    cache.make_room(200)
    assert [folder.exists() for folder in (older, old, new)] == [False, True, True]
    assert (cache.read("older"), cache.size()) == (None, 600)


def test_what_is_in_use_or_being_built_stays(cache: Cache) -> None:
    used, built = keep(cache, "used", 300, 300), keep(cache, "built", 300, 200)
    cache.hold(used)
    with (
        locks.exclusive(cache.lock("built"), timeout=1),
        pytest.raises(NoRoomError, match=r"no room for 0 MB .* \(the cap is 0 MB\)") as caught,
    ):
        cache.make_room(500)
    assert caught.value.kind == "unavailable"
    assert (used.exists(), built.exists()) == (True, True)
    release()
    cache.make_room(500)
    assert (used.exists(), built.exists()) == (False, True), "no more than needed"


def test_what_can_never_fit_is_not_worth_waiting_for(cache: Cache) -> None:
    cache.hold(keep(cache, "used", 300, 300))
    with pytest.raises(CheckpointError, match="no room for") as caught:
        cache.make_room(1001)
    assert not isinstance(caught.value, NoRoomError)


def test_room_that_was_promised_is_taken_while_it_is_being_filled(cache: Cache) -> None:
    with locks.exclusive(cache.lock("one"), timeout=1):
        cache.make_room(600, key="one")
        cache.make_room(600, key="one")  # a second try of the same
        with pytest.raises(NoRoomError):
            cache.make_room(600, key="other")
    cache.make_room(600, key="other")


def test_hold_protects_a_checkpoint_that_another_process_resolved(cache: Cache) -> None:
    folder = keep(cache, "a", 900, 300)
    checkpoint = checkpoint_in(folder)
    with hold(checkpoint, cache.root), pytest.raises(CheckpointError, match="no room"):
        cache.make_room(500)
    cache.make_room(500)
    assert not folder.exists()


def test_release_lets_go_of_one(cache: Cache) -> None:
    one, other = keep(cache, "one", 300, 300), keep(cache, "other", 300, 200)
    cache.hold(one)
    cache.hold(other)
    cache.hold(one)
    release(checkpoint_in(one))
    with pytest.raises(NoRoomError):  # held twice, released once
        cache.make_room(700)
    release(checkpoint_in(one))
    cache.make_room(700)
    assert (one.exists(), other.exists()) == (False, True)
    release()
    cache.make_room(1000)
    assert not other.exists()


def test_wheels_are_evicted_too(cache: Cache) -> None:
    wheel = cache.root / "wheels" / ("0" * 64) / "a-1-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"x" * 900)
    os.utime(wheel, (1, 1))
    assert cache.size() == 900
    cache.make_room(500)
    assert not wheel.parent.exists()


def test_a_disk_that_is_too_small_is_found_before_writing(tmp_path: Path) -> None:
    # the directory does not exist yet
    place = tmp_path / "not" / "made" / "yet"
    assert free_bytes(place) > 0
    with pytest.raises(CheckpointError, match="no room for"):
        Cache(place).make_room(free_bytes(place) - RESERVE + 10**9)
    assert [path.name for path in place.iterdir()] == ["locks"]


def test_a_full_disk_while_building_is_infrastructure_and_leaves_nothing(cache: Cache) -> None:
    def build() -> None:
        with disk_errors_as_unavailable(cache.root), cache.workshop() as place:
            (place / "half").write_bytes(b"x")
            Path("/dev/full").write_bytes(b"x")

    with pytest.raises(CheckpointError, match="No space left on device") as caught:
        build()
    assert caught.value.kind == "unavailable"
    assert list((cache.root / "building").iterdir()) == []


def test_what_a_killed_builder_left_is_swept_and_what_is_built_stays(cache: Cache) -> None:
    left = cache.root / "building" / "tmp-left"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x")
    with cache.workshop() as first:
        assert not left.exists()
        with cache.workshop() as second:
            assert sorted(path.name for path in first.parent.iterdir()) == sorted([first.name, second.name])
    assert list(left.parent.iterdir()) == []


def test_damage_names_file_and_difference(cache: Cache) -> None:
    folder = keep(cache, "a", 300, 0)
    kept = cache.read("a")
    assert kept is not None
    assert cache.damage(kept, refresh=True) is None
    (folder / "a.bin").write_bytes(b"y" * 300)
    assert str(cache.damage(kept)).startswith("a.bin has sha256 ")
    (folder / "a.bin").write_bytes(b"y")
    assert cache.damage(kept) == "a.bin has 1 bytes and should have 300"
    (folder / "a.bin").unlink()
    assert cache.damage(kept) == "a.bin is missing"


@pytest.mark.parametrize("content", ["", "{}", "[", '{"origin": 1}'])
def test_a_damaged_record_counts_as_none(cache: Cache, content: str) -> None:
    keep(cache, "a", 10, 0)
    cache.record("a").write_text(content)
    assert cache.read("a") is None
    assert cache.size() == 0


def test_publishing_replaces_the_damaged_entry_whole(cache: Cache) -> None:
    first = keep(cache, "a", 10, 0)
    (first / "extra").write_bytes(b"")
    assert keep(cache, "a", 20, 0) == first
    assert [path.name for path in first.iterdir()] == ["a.bin"]
