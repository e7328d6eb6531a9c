"""Errors that the user can act on. Everything else that escapes is a bug and shows its traceback."""

from __future__ import annotations


class HarnessError(Exception):
    """The user can act on it: printed without a traceback. The message names thing, place and remedy."""

    exit_status = 3


class UsageError(HarnessError):
    """The input is wrong: an option, a manifest, a path."""

    exit_status = 2


class ManifestError(UsageError):
    """models.yaml is wrong; each message begins with ``file:line:``."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class StoreError(HarnessError):
    """A run directory cannot be read or written."""


class StoredDataError(StoreError, UsageError):
    """What was given as stored data cannot be taken: it is damaged, of a newer harness, or no part of the rest."""

    exit_status = 2


class CheckpointError(HarnessError):
    """A checkpoint could not be brought. `kind` is the outcome it stands for."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class NoRoomError(CheckpointError):
    """The cache has no room for a checkpoint while others are in use: room may come."""
