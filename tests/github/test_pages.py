"""The pages branch in a real bare repository: whoever publishes second loses nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.github import checkout, publish


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def clones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two clones of one bare repository with a commit on main."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.org")
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(bare)], check=True)
    one, other = tmp_path / "one", tmp_path / "other"
    subprocess.run(["git", "clone", "-q", str(bare), str(one)], check=True, capture_output=True)
    (one / "code.py").write_text("code\n")
    (one / ".gitignore").write_text("*.html\n")
    git(one, "checkout", "-q", "-b", "main")
    git(one, "add", ".")
    git(one, "commit", "-q", "-m", "code")
    git(one, "push", "-q", "origin", "main")
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{bare}", str(other)], check=True)
    return one, other


def add(name: str):
    def change(folder: Path) -> None:
        (folder / f"{name}.html").write_text(name)

    return change


def published(clone: Path) -> list[str]:
    git(clone, "fetch", "-q", "origin", "gh-pages")
    return git(clone, "ls-tree", "--name-only", "FETCH_HEAD").splitlines()


def test_a_branch_begins_empty_and_grows_with_its_history(clones: tuple[Path, Path]) -> None:
    one, other = clones
    assert checkout(one, "gh-pages", one.parent / "before") is None
    publish(one, "gh-pages", add("first"), "first")
    publish(other, "gh-pages", add("second"), "second")
    assert published(one) == ["first.html", "second.html"]
    assert git(one, "log", "--format=%s", "FETCH_HEAD").splitlines() == ["second", "first"]
    assert (git(one, "status", "--porcelain"), git(one, "branch", "--show-current")) == ("", "main")
    assert git(one, "for-each-ref", "refs/conformance") == ""


@pytest.mark.parametrize("begun", [True, False])
def test_two_from_the_same_parent_lose_nothing(clones: tuple[Path, Path], begun: bool) -> None:
    one, other = clones
    if begun:
        publish(one, "gh-pages", add("begin"), "begin")
    seen: list[list[str]] = []

    def slow(folder: Path) -> None:
        """Changes the parent's state while somebody else publishes on top of the same parent."""
        seen.append(sorted(path.name for path in folder.iterdir()))
        if len(seen) == 1:
            publish(other, "gh-pages", add("fast"), "fast")
        add("slow")(folder)

    commit = publish(one, "gh-pages", slow, "slow")
    begin = ["begin.html"] if begun else []
    assert seen == [begin, [*begin, "fast.html"]]
    assert published(other) == [*begin, "fast.html", "slow.html"]
    assert git(other, "rev-parse", "FETCH_HEAD") == commit


def test_nothing_new_makes_no_commit(clones: tuple[Path, Path]) -> None:
    one, _ = clones
    first = publish(one, "gh-pages", add("same"), "first")
    assert publish(one, "gh-pages", add("same"), "again") == first


def test_what_a_change_removes_is_gone(clones: tuple[Path, Path]) -> None:
    one, other = clones
    publish(one, "gh-pages", add("old"), "first")

    def replace(folder: Path) -> None:
        (folder / "old.html").unlink()
        add("new")(folder)

    publish(other, "gh-pages", replace, "second")
    assert published(one) == ["new.html"]


def test_a_refusal_for_another_reason_is_told_at_once(clones: tuple[Path, Path], tmp_path: Path) -> None:
    hook = tmp_path / "bare.git" / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho protected branch >&2\nexit 1\n")
    hook.chmod(0o755)
    asked = []

    def change(folder: Path) -> None:
        asked.append(folder)
        add("first")(folder)

    with pytest.raises(HarnessError, match="protected branch"):
        publish(clones[0], "gh-pages", change, "first")
    assert len(asked) == 1


def test_a_folder_without_git_is_told(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="is no git repository"):
        publish(tmp_path, "gh-pages", add("first"), "first")
