import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.checkpoints import locks
from harness.errors import CheckpointError


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    lock = tmp_path / "deep" / "a.lock"
    assert not locks.is_held(lock)
    with locks.exclusive(lock, timeout=1):
        assert locks.is_held(lock)
        before = time.monotonic()
        with (
            pytest.raises(CheckpointError, match=f"{lock}, held by process {os.getpid()}") as caught,
            locks.exclusive(lock, timeout=0.1),
        ):
            pass
        assert time.monotonic() - before < 2
        assert caught.value.kind == "unavailable"
    assert not locks.is_held(lock)


def test_sharers_keep_out_one_who_wants_it_alone(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    first, second = locks.share(lock), locks.share(lock)
    for handle in (first, second):
        with locks.at_once(lock) as held:
            assert not held
        os.close(handle)
    with locks.at_once(lock) as held:
        assert held


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    # an orphaned lock file must not block later runs
    lock = tmp_path / "a.lock"
    program = (
        f"import fcntl, sys, time; f = open({str(lock)!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True)"
    )
    holder = subprocess.Popen([sys.executable, "-S", "-c", f"{program}; time.sleep(60)"], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    assert locks.is_held(lock)
    holder.kill()
    holder.communicate()
    with locks.exclusive(lock, timeout=1):
        assert lock.exists()


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[Path]:
    """A folder with the locks of a warm cache, and a way to it on which nothing can be written."""
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "a.lock").touch()
    if os.geteuid() != 0:
        folder.chmod(0o555)
        (folder / "a.lock").chmod(0o444)
        yield folder
        folder.chmod(0o755)
        return
    way = tmp_path / "sealed"
    way.mkdir()
    mounts = (["mount", "--bind", str(folder), str(way)], ["mount", "-o", "remount,bind,ro", str(way)])
    if any(subprocess.run(mount, capture_output=True, check=False).returncode for mount in mounts):
        subprocess.run(["umount", str(way)], capture_output=True, check=False)
        pytest.skip("nothing can be mounted here")
    yield way
    subprocess.run(["umount", str(way)], check=True)


def test_a_cache_that_may_only_be_read_is_locked_all_the_same(sealed: Path, tmp_path: Path) -> None:
    with locks.exclusive(sealed / "a.lock", timeout=1), locks.at_once(tmp_path / "cache" / "a.lock") as free:
        assert not free, "those who may write see it held"
    with pytest.raises(OSError, match=r"b\.lock"):
        locks.share(sealed / "b.lock")
