"""Brings any source to a verified local folder, or says what kind of obstacle there is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from harness.checkpoints import folder, hub, wheel
from harness.checkpoints.cache import Cache, Kept, disk_errors_as_unavailable
from harness.checkpoints.hashing import digest_of
from harness.checkpoints.structure import Structure, inspect
from harness.errors import CheckpointError
from harness.records import Checkpoint, FolderSource, HubSource, Record, Source, WheelSource

TIMEOUT = 1800.0
"""Seconds of wall clock for one checkpoint, downloads and waiting for other processes included."""


class Facts(Record):
    """What is known of a checkpoint before its weights are fetched."""

    parameters: int | None = None
    weight_bytes: int | None = None
    """Bytes of the weight files as stored."""
    stored_dtype: str | None = None


def resolve(
    source: Source,
    *,
    cache: Path,
    base: Path,
    offline: bool = False,
    refresh: bool = False,
    timeout: float = TIMEOUT,
    cache_limit: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Checkpoint:
    """Return the checkpoint in a local folder, complete and verified; it stays until this process ends.

    CACHE is the harness' own directory, capped at CACHE_LIMIT bytes; BASE is what relative folders are
    relative to. OFFLINE forbids any request. REFRESH hashes every file again. ENVIRON is what pip and the Hub's client
    run with (index, endpoint, token, HF_HOME); without it, this process's own. Raises CheckpointError:
    ``unavailable``, ``gated`` or ``invalid_checkpoint``.
    """
    store = Cache(cache, cache_limit)
    with disk_errors_as_unavailable(store.root):
        kept = _bring(source, store, base, environ or os.environ, offline=offline, refresh=refresh, timeout=timeout)
    structure = inspect(
        Path(kept.folder),
        [fact.name for fact in kept.files],
        kept.origin,
        allow_pickle=source.allow_pickle is not None,
        allow_remote_code=_may_run_code(source),
    )
    return _checkpoint(source, kept, structure)


def describe(
    source: Source,
    *,
    cache: Path,
    base: Path,
    offline: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Facts | None:
    """Return parameters and bytes of the weights without fetching them; None if they are not known.

    What is in the cache is read there; otherwise a Hub is asked for the headers of the weight files.
    A wheel that is not in the cache stays unknown, since an index tells nothing about its contents.
    """
    store = Cache(cache)
    try:
        if isinstance(source, FolderSource):
            kept: Kept | None = folder.bring(source, store, base, refresh=False)
        else:
            kept = store.read(wheel.key_of(source) if isinstance(source, WheelSource) else hub.key_of(source))
        if kept is None:
            if offline or not isinstance(source, HubSource):
                return None
            known = hub.ask_size(source, store, environ or os.environ)
            return Facts(**known) if known else None
        names = [fact.name for fact in kept.files]
        structure = inspect(Path(kept.folder), names, kept.origin, allow_pickle=True)
    except (CheckpointError, OSError):
        return None  # resolve says what is wrong, as an outcome of the case
    return Facts(
        parameters=structure.parameters,
        weight_bytes=structure.weight_bytes,
        stored_dtype=structure.stored_dtype,
    )


def _bring(
    source: Source,
    store: Cache,
    base: Path,
    environ: Mapping[str, str],
    *,
    offline: bool,
    refresh: bool,
    timeout: float,
) -> Kept:
    if isinstance(source, WheelSource):
        return wheel.bring(source, store, environ, offline=offline, refresh=refresh, timeout=timeout)
    if isinstance(source, HubSource):
        return hub.bring(source, store, environ, offline=offline, refresh=refresh, timeout=timeout)
    return folder.bring(source, store, base, refresh=refresh)


def _checkpoint(source: Source, kept: Kept, structure: Structure) -> Checkpoint:
    revision = {HubSource: "revision", WheelSource: "sha256"}.get(type(source))
    return Checkpoint(
        folder=kept.folder,
        origin=kept.origin,
        revision=getattr(source, revision) if revision else None,
        format=structure.format,
        stored_dtype=structure.stored_dtype,
        architecture=structure.architecture,
        model_type=structure.model_type,
        parameters=structure.parameters,
        files=kept.files,
        digest=digest_of(kept.files),
        allow_pickle=source.allow_pickle is not None,
        allow_remote_code=_may_run_code(source),
    )


def _may_run_code(source: Source) -> bool:
    return isinstance(source, HubSource) and source.allow_remote_code is not None
