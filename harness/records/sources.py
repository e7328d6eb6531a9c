"""Nouns of where weights come from, each pinned so that it cannot change unseen."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Discriminator, StringConstraints, Tag, field_validator

from harness.records.base import Record

Reason = Annotated[str, StringConstraints(min_length=8, strip_whitespace=True)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", strict=True)]
CommitSha = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$", strict=True)]


class HubSource(Record):
    """A repository on the Hugging Face Hub at one commit."""

    hub: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$", max_length=200)]
    """Repository id, ``organisation/name``."""
    revision: CommitSha
    """The commit: 40 hexadecimal digits, quoted. A branch may move, so none is accepted."""
    allow_pickle: Reason | None = None
    """Why ``pytorch_model.bin`` may be read (with ``weights_only``). Without it: safetensors only."""
    allow_remote_code: Reason | None = None
    """Why the repository's own Python code may run, at the pinned commit."""

    @field_validator("hub")
    @classmethod
    def _a_repository(cls, hub: str) -> str:
        if ".." in hub or any(part[0] in ".-" or part[-1] in ".-" for part in hub.split("/")):
            raise ValueError(f"the Hub has no repository {hub!r}: no name begins or ends with '.' or '-', or has '..'")
        return hub


class WheelSource(Record):
    """A checkpoint that ships inside a package on the package index."""

    wheel: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*==[\w.!+]+$")]
    """``name==version`` as pip understands it."""
    path: Annotated[str, StringConstraints(min_length=1)]
    """The checkpoint inside the wheel: a folder, or a file for a converter."""
    sha256: Sha256
    """Hash of the wheel file."""
    converter: Literal["gguf"] | None = None
    """Turns what lies at ``path`` into an ordinary checkpoint, once, in the cache."""
    allow_pickle: Reason | None = None
    """Why ``pytorch_model.bin`` may be read (with ``weights_only``). Without it: safetensors only."""

    @field_validator("path")
    @classmethod
    def _inside_the_wheel(cls, path: str) -> str:
        parts = PurePosixPath(path).parts
        if path.startswith("/") or "\\" in path or ".." in parts or ":" in path:
            raise ValueError(f"path {path!r} leads out of the wheel; give a relative path with '/'")
        return path


class FolderSource(Record):
    """A checkpoint in a local directory."""

    folder: Annotated[str, StringConstraints(min_length=1)]
    """Absolute, or relative to the manifest's directory."""
    allow_pickle: Reason | None = None
    """Why ``pytorch_model.bin`` may be read (with ``weights_only``). Without it: safetensors only."""


def _source_kind(value: Any) -> str | None:
    there = [
        kind
        for kind in ("hub", "wheel", "folder")
        if (isinstance(value, dict) and kind in value) or hasattr(value, kind)
    ]
    return f"<{there[0]}>" if len(there) == 1 else None  # no key looks like this: an error's location stays readable


Source = Annotated[
    Annotated[HubSource, Tag("<hub>")]
    | Annotated[WheelSource, Tag("<wheel>")]
    | Annotated[FolderSource, Tag("<folder>")],
    Discriminator(
        _source_kind,
        custom_error_type="source_kind",
        custom_error_message="a source needs exactly one of the keys 'hub', 'wheel' and 'folder'",
    ),
]
"""Where a checkpoint comes from; the key ``hub``, ``wheel`` or ``folder`` tells which."""


def source_kind(source: HubSource | WheelSource | FolderSource) -> Literal["hub", "wheel", "folder"]:
    """Return the key that tells this kind of source from the others."""
    if isinstance(source, HubSource):
        return "hub"
    return "wheel" if isinstance(source, WheelSource) else "folder"
