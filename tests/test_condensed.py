"""What is kept beside a run is used while it is whole and the run is the same, and made anew otherwise."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import condensed, history, nightly, store
from harness.records import ChangeKind, Status
from tests.stored_runs import write_run

PASS, FAIL = Status.PASS, Status.FAIL


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with what is kept of it."""
    made = write_run(tmp_path / "run", {"a": PASS, "b": FAIL})
    condensed.condense(made)[0].keep()
    return made


def test_what_is_kept_is_what_was_read(run: Path) -> None:
    one, stored = condensed.condense(run)
    again = condensed.kept(run)
    assert again is not None
    assert again == one
    assert (again.run_id, again.lane, again.started) == ("night-000", "x86_64 emulator", stored.run.started)
    assert again.view == history.view(stored.run, stored.results)
    assert (again.digest.ids, again.digest.statuses) == (one.digest.ids, "PF")


def test_a_copied_run_keeps_what_was_kept(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy", copy_function=shutil.copyfile)
    for name in (store.RUN_FILE, store.CASES_FILE):
        os.utime(tmp_path / "copy" / name, (1, 1))
    assert condensed.kept(tmp_path / "copy") is not None


def _grown(run: Path) -> None:
    with (run / store.CASES_FILE).open("ab") as lines:
        lines.write(b"{}\n")


def _edited(run: Path) -> None:
    path = run / store.CASES_FILE
    path.write_text(path.read_text().replace('"FAIL"', '"PASS"'))


def _gone(run: Path) -> None:
    (run / store.CASES_FILE).unlink()


def _altered(run: Path) -> None:
    path = run / condensed.FILE
    path.write_text(path.read_text().replace('"statuses": "PF"', '"statuses": "PP"'))


def _cut(run: Path) -> None:
    path = run / condensed.FILE
    path.write_bytes(path.read_bytes()[:-20])


def _not_text(run: Path) -> None:
    (run / condensed.FILE).write_bytes(b"\xff\x00")


def _not_a_head(run: Path) -> None:
    (run / condensed.FILE).write_text("[]\n{}\n{}\n{}\n")


def _older_form(run: Path) -> None:
    path = run / condensed.FILE
    path.write_text(path.read_text().replace('"form": [1,', '"form": [0,', 1))


def _missing(run: Path) -> None:
    (run / condensed.FILE).unlink()


@pytest.mark.parametrize(
    "spoil", [_grown, _edited, _gone, _altered, _cut, _not_text, _not_a_head, _older_form, _missing]
)
def test_stale_missing_or_altered_it_is_made_anew(run: Path, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    before = [path.read_bytes() for path in (run / condensed.FILE, run / store.CASES_FILE)]
    spoil(run)
    after = [path.read_bytes() if path.exists() else b"" for path in (run / condensed.FILE, run / store.CASES_FILE)]
    assert after != before, "nothing was spoiled"
    assert condensed.kept(run) is None
    nightly.publish([run], tmp_path / "site")
    again, made = condensed.kept(run), condensed.condense(run)[0]
    assert again is not None
    assert (again.head, again.digest_text, again.view_text) == (made.head, made.digest_text, made.view_text)


def test_a_run_that_goes_on_keeps_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"a": PASS}, finished=False)
    nightly.publish([run], tmp_path / "site")
    assert not (run / condensed.FILE).exists()


def test_a_folder_that_cannot_be_written_to_is_read_each_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / condensed.FILE).unlink()

    def refuse(path: Path, data: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(store, "write_atomically", refuse)
    condensed.condense(run)[0].keep()
    assert condensed.kept(run) is None


def test_changes_are_kept_until_the_past_changes(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"{n}", {"a": status}, n) for n, status in enumerate((PASS, PASS, FAIL))]
    seen = [condensed.condense(run)[0] for run in runs]
    assert [change.kind for change in seen[2].changes(seen[:2])] == [ChangeKind.REGRESSED]
    again = condensed.kept(runs[2])
    assert again is not None
    assert again.changes(seen[:2]) == seen[2].changes(seen[:2])
    assert "view" not in again.__dict__, "the view was parsed although the answer was known"
    assert [change.kind for change in again.changes([])] == []
