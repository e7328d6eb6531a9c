import os
import subprocess
import sys
import time
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
