"""A branch that serves pages and keeps a history: two publishers at once lose nothing.

What is published is a change to the newest state, never a finished tree: when another publisher was faster,
the push is refused, and the change is made again on top of what the other one published. Pushes are never
forced. Neither the work tree nor the index of the repository is touched.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.errors import HarnessError, UsageError

TRIES = 10
"""Publishers that may come first, one after the other, before this one gives up."""
IDENTITY = {
    "GIT_AUTHOR_NAME": "conformance",
    "GIT_AUTHOR_EMAIL": "conformance@users.noreply.github.com",
    "GIT_COMMITTER_NAME": "conformance",
    "GIT_COMMITTER_EMAIL": "conformance@users.noreply.github.com",
}


class _GitError(HarnessError):
    """Git refused."""


def checkout(repository: Path, branch: str, folder: Path, remote: str = "origin") -> str | None:
    """Lay the newest state of a remote branch into an empty folder; returns its commit, None without a branch."""
    folder.mkdir(parents=True, exist_ok=True)
    if remote not in _git(repository, "remote").split():
        raise UsageError(f"--repository {repository}: has no remote {remote!r}; name a clone that has one")
    if _tip(repository, remote, branch) is None:
        return None
    commit = _fetch(repository, remote, branch)
    with _index(folder) as environment:
        _git(repository, "read-tree", commit, environment=environment)
        _git(repository, "checkout-index", "--all", f"--prefix={folder}/", environment=environment)
    return commit


def publish(repository: Path, branch: str, change: Callable[[Path], None], message: str, remote: str = "origin") -> str:
    """Return the commit that brought ``change`` to the remote branch, which begins empty.

    ``change`` gets a folder with the newest state, and is called again when another publisher was faster.
    Raises HarnessError with git's words when the push is refused for another reason.
    """
    for _ in range(TRIES):
        with tempfile.TemporaryDirectory(prefix="pages-") as name:
            folder = Path(name) / "tree"
            parent = checkout(repository, branch, folder, remote)
            change(folder)
            commit = _commit(repository, folder, parent, message)
        if commit == parent:
            return commit
        try:
            _git(repository, "push", "--quiet", remote, f"{commit}:refs/heads/{branch}")
        except _GitError:
            if _tip(repository, remote, branch) == parent:
                raise
        else:
            return commit
    raise HarnessError(f"{remote} {branch}: {TRIES} other publishers came first; run the step again")


def _tip(repository: Path, remote: str, branch: str) -> str | None:
    listed = _git(repository, "ls-remote", "--heads", remote, f"refs/heads/{branch}")
    return listed.split()[0] if listed else None


def _fetch(repository: Path, remote: str, branch: str) -> str:
    """Return the tip's commit, brought here under a name that nothing else uses."""
    # The past of a branch with a commit per night is large, but cutting it is for clones that are cut already.
    shallow = _git(repository, "rev-parse", "--is-shallow-repository") == "true"
    depth = ("--depth=1",) if shallow else ()
    name = f"refs/conformance/{secrets.token_hex(8)}"
    _git(repository, "fetch", "--quiet", "--no-tags", *depth, remote, f"refs/heads/{branch}:{name}")
    commit = _git(repository, "rev-parse", name)
    _git(repository, "update-ref", "-d", name)
    return commit


def _commit(repository: Path, folder: Path, parent: str | None, message: str) -> str:
    """Return the commit of a folder's content; the parent itself when nothing differs."""
    with _index(folder) as environment:
        # What a user ignores in general is published all the same.
        _git(repository, f"--work-tree={folder}", "add", "--all", "--force", ".", environment=environment, at=folder)
        tree = _git(repository, "write-tree", environment=environment)
    if parent is not None and _git(repository, "rev-parse", f"{parent}^{{tree}}") == tree:
        return parent
    parents = ("-p", parent) if parent else ()
    return _git(repository, "commit-tree", tree, *parents, "-m", message, environment=IDENTITY)


@contextmanager
def _index(folder: Path) -> Iterator[Mapping[str, str]]:
    """Yield variables that give git an index of its own, beside the folder."""
    path = folder.parent / f".{folder.name}.index"
    path.unlink(missing_ok=True)
    try:
        yield {"GIT_INDEX_FILE": str(path)}
    finally:
        path.unlink(missing_ok=True)


def _git(
    repository: Path, *arguments: str, environment: Mapping[str, str] | None = None, at: Path | None = None
) -> str:
    directory = _git_directory(repository)
    command = ["git", f"--git-dir={directory}", *arguments]
    done = subprocess.run(
        command,
        cwd=at or repository,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0", **(environment or {})},
    )
    if done.returncode:
        said = " ".join(done.stderr.split()) or "refused without a word"
        raise _GitError(f"git {arguments[0]} in {repository}: {said}")
    return done.stdout.strip()


def _git_directory(repository: Path) -> Path:
    found = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "--absolute-git-dir"],  # noqa: S607 - the user's git
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        what = "is no git repository" if repository.exists() else "there is no such folder"
        raise UsageError(f"--repository {repository}: {what}; run the step in a checkout, or name one")
    return Path(found.stdout.strip())
