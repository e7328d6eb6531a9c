"""Brings a repository of the Hugging Face Hub at one commit.

The client runs in a process of its own (`harness.checkpoints.hub_fetch`), because a download may hang
for ever and the library reads its environment at import. This side owns the wall clock, the lock and
the record of what was verified; a checkpoint on record is served without any request.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.checkpoints import child, locks
from harness.checkpoints.cache import Cache, Kept
from harness.checkpoints.hub_cache import repository_folder, sweep
from harness.checkpoints.scrub import scrub
from harness.errors import CheckpointError, NoRoomError
from harness.records import HubSource, OutcomeKind

SIZE_TIMEOUT = 60.0
"""Seconds for the headers of the weight files."""
_unreachable: dict[str, str] = {}
"""Endpoints that did not answer this process, and the client's words: asked once, not once per row."""


def origin_of(source: HubSource) -> str:
    """Return the pinned name that reports show."""
    return f"hub:{source.hub}@{source.revision}"


def key_of(source: HubSource) -> str:
    """Return the name of the record: repository, commit and what of it may be fetched."""
    allowed = f"{bool(source.allow_pickle)} {bool(source.allow_remote_code)}"
    digest = hashlib.sha256(f"{source.hub}\0{source.revision}\0{allowed}".encode()).hexdigest()[:16]
    return f"hub-{source.hub.replace('/', '--')}-{digest}"


def bring(
    source: HubSource,
    cache: Cache,
    environ: Mapping[str, str],
    *,
    offline: bool,
    refresh: bool,
    timeout: float,
) -> Kept:
    """Return the verified snapshot. Raises CheckpointError: unavailable, gated or invalid_checkpoint."""
    key = key_of(source)
    deadline = time.monotonic() + timeout
    with locks.exclusive(cache.lock(key), timeout=timeout):
        kept = cache.read(key)
        damage = cache.damage(kept, refresh=refresh) if kept is not None else None
        if kept is not None and damage is None:
            cache.touch(key)
        elif kept is not None and offline:
            raise _damaged_offline(source, kept, damage or "")
        else:
            action = "adopt" if offline else "fetch"
            reply = _ask(source, cache, action, environ, timeout=max(1.0, deadline - time.monotonic()))
            kept = Kept.model_validate(reply["kept"])
            if reply["complete"]:
                cache.write(key, kept)
        cache.hold(Path(kept.folder))
        return kept


def ask_size(source: HubSource, cache: Cache, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return parameters, bytes and dtype of the weights as the Hub states them; None if it does not."""
    size: dict[str, Any] | None = _ask(source, cache, "size", environ, timeout=SIZE_TIMEOUT)["size"]
    return size


def _ask(source: HubSource, cache: Cache, action: str, environ: Mapping[str, str], *, timeout: float) -> dict[str, Any]:
    """Return the reply of the process that talks to the Hub."""
    endpoint = environ.get("HF_ENDPOINT", "")
    if action != "adopt" and endpoint in _unreachable:
        raise CheckpointError(f"{origin_of(source)}: {_unreachable[endpoint]}", OutcomeKind.UNAVAILABLE)
    request = {
        "source": source.model_dump(),
        "action": action,
        "key": key_of(source),
        "cache": str(cache.root),
        "limit": cache.limit,
    }
    finished = child.run(
        [sys.executable, "-m", "harness.checkpoints.hub_fetch"],
        timeout=timeout,
        request=json.dumps(request) + "\n",
        environ=_environment(environ, offline=action == "adopt"),
    )
    messages = [json.loads(line) for line in finished.output.splitlines() if line.startswith("{")]
    hub_cache = next((Path(message["hub_cache"]) for message in messages if "hub_cache" in message), None)
    last: dict[str, Any] = messages[-1] if messages else {}
    if finished.status is None:
        raise _too_slow(source, hub_cache, timeout)
    if "failure" in last:
        failure = last["failure"]
        if failure["unreachable"]:
            _unreachable[endpoint] = failure["message"]
        error = NoRoomError if failure["no_room"] else CheckpointError
        raise error(f"{origin_of(source)}: {failure['message']}", failure["kind"])
    if finished.status != 0:
        raise RuntimeError(
            f"{origin_of(source)}: the fetching process ended with {finished.status}:\n{scrub(finished.errors)[-4000:]}"
        )
    return last


def _environment(environ: Mapping[str, str], *, offline: bool) -> dict[str, str]:
    """Return the environment of the client: plain HTTP, since its xet path can hang without a limit."""
    own = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    if offline:
        own["HF_HUB_OFFLINE"] = "1"
    return {**environ, **own}


def _too_slow(source: HubSource, hub_cache: Path | None, timeout: float) -> CheckpointError:
    """Return the error for a fetch that was killed, naming a lock of another program if one is held."""
    text = f"{origin_of(source)}: not fetched within {timeout:.0f} s, and ended; try again or raise the resolve timeout"
    if hub_cache is not None:
        sweep(hub_cache, source.hub)
        folder = hub_cache / ".locks" / repository_folder(source.hub)
        held = [path for path in sorted(folder.glob("*.lock")) if locks.is_held(path)]
        if held:
            text += f"; another program holds the lock {held[0]}"
    return CheckpointError(text, OutcomeKind.UNAVAILABLE)


def _damaged_offline(source: HubSource, kept: Kept, damage: str) -> CheckpointError:
    """Return the error for a cached snapshot that cannot be mended without the Hub."""
    where = f"{origin_of(source)}: the snapshot in {kept.folder}"
    if damage.endswith("is missing"):
        return CheckpointError(
            f"{where} is incomplete: {damage}; fetch it again without offline mode", OutcomeKind.UNAVAILABLE
        )
    return CheckpointError(
        f"{where} is corrupt: {damage}; fetch it again without offline mode", OutcomeKind.INVALID_CHECKPOINT
    )
