"""The checkpoints of a run: brought when a case needs one, kept while it runs, evictable afterwards."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from harness import checkpoints
from harness.errors import CheckpointError, NoRoomError
from harness.records import Case, Checkpoint
from harness.settings import Settings

ROOM_SECONDS = 10.0
"""How often a full cache is looked at again that other processes may have left; cases of this run tell at once."""


class Stock:
    """Brings checkpoints for the cases of a run, within the cache's cap. Safe to use from many threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._cache = settings.cache / "checkpoints"
        self._base = settings.manifest_path.parent
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._failed: dict[str, CheckpointError] = {}
        """What could not be brought: a run tries once."""
        self._changed = threading.Condition()
        self._released = 0

    @contextmanager
    def using(self, case: Case) -> Iterator[Checkpoint]:
        """The case's checkpoint, which is not evicted while the block runs. Raises CheckpointError."""
        checkpoint = self._bring(case)
        try:
            yield checkpoint
        finally:
            checkpoints.release(checkpoint)
            with self._changed:
                self._released += 1
                self._changed.notify_all()

    def parameters(self, case: Case) -> int | None:
        """The size that the checkpoint's own metadata tells, before anything large is fetched."""
        with self._locks[case.source.model_dump_json()]:
            facts = checkpoints.describe(
                case.source, cache=self._cache, base=self._base, offline=self._settings.offline
            )
        return facts.parameters if facts else None

    def _bring(self, case: Case) -> Checkpoint:
        """One thread at a time for each source; what lies in the cache is verified again, not fetched."""
        name = case.source.model_dump_json()
        deadline = time.monotonic() + case.timeouts.resolve
        while True:
            seen = self._released
            with self._locks[name]:
                if name in self._failed:
                    raise self._failed[name]
                try:
                    return self._resolve(case)
                except NoRoomError:
                    if time.monotonic() >= deadline:
                        raise
                except CheckpointError as error:
                    self._failed[name] = error
                    raise
            with self._changed:
                if self._released == seen:
                    self._changed.wait(ROOM_SECONDS)

    def _resolve(self, case: Case) -> Checkpoint:
        return checkpoints.resolve(
            case.source,
            cache=self._cache,
            base=self._base,
            offline=self._settings.offline,
            timeout=case.timeouts.resolve,
            cache_limit=self._settings.cache_limit,
        )
