"""What the harness knows of the layout of the Hugging Face cache.

https://huggingface.co/docs/huggingface_hub/guides/manage-cache: ``models--org--name/{blobs,snapshots}``,
with a lock per blob in ``.locks/models--org--name``.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from harness.checkpoints import locks


def repository_folder(repository: str) -> str:
    """Return the name of a model repository's folder in the cache."""
    return "models--" + repository.replace("/", "--")


def snapshot_folder(hub_cache: Path, repository: str, revision: str) -> Path:
    """Return where the files of one commit appear."""
    return hub_cache / repository_folder(repository) / "snapshots" / revision


def sweep(hub_cache: Path, repository: str) -> int:
    """Delete partial files that killed downloads left behind; return their bytes.

    The client names them ``<etag>.<random>.incomplete`` and never comes back to them. A partial file
    whose blob is locked belongs to a download that runs, and stays.
    """
    freed = 0
    blobs = hub_cache / repository_folder(repository) / "blobs"
    for partial in sorted(blobs.glob("*.incomplete")):
        lock = hub_cache / ".locks" / repository_folder(repository) / f"{partial.name.split('.')[0]}.lock"
        with locks.at_once(lock) as free, contextlib.suppress(FileNotFoundError):
            if free:
                freed += partial.stat().st_size
                partial.unlink()
    return freed


def forget(snapshot: Path, name: str) -> None:
    """Delete one file of a snapshot, with the blob behind it, so that the client fetches it again."""
    path = snapshot / name
    target = path.resolve()
    path.unlink(missing_ok=True)
    if target.is_relative_to(snapshot.resolve().parents[1]):
        target.unlink(missing_ok=True)
