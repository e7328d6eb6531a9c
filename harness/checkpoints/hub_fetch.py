"""The process that talks to the Hub: a request on standard input, replies as JSON lines on standard output.

It does what huggingface_hub leaves to its callers (version 2.4): compares contents with their hashes,
repeats a 5xx on a file, catches transport errors of its HTTP client, checks the disk first and sweeps
partial files. It ends when its parent does.
"""

from __future__ import annotations

import glob
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from huggingface_hub import HfApi, constants, get_session, get_token, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError
from huggingface_hub.hf_api import RepoFile

from harness.checkpoints.cache import Cache, Kept
from harness.checkpoints.hashing import git_sha1_of
from harness.checkpoints.hub import origin_of
from harness.checkpoints.hub_cache import forget, snapshot_folder, sweep
from harness.checkpoints.hub_errors import Unreachable, classify, patiently
from harness.checkpoints.safetensors_header import TORCH_NAMES
from harness.checkpoints.selection import refuse_unsafe_name, select, weight_files
from harness.checkpoints.structure import IncompleteError, inspect, invalid
from harness.errors import CheckpointError
from harness.records import FileFact, HubSource, OutcomeKind

REACH_SECONDS = 5.0
"""How long an endpoint may take to accept a connection before it counts as unreachable."""
WORKERS = 4
"""Files fetched at the same time."""


class Expected(NamedTuple):
    """What the Hub's listing states of a file."""

    size: int
    git_sha1: str
    sha256: str | None
    """Of large files (Git LFS); small ones are known by their Git object id."""


class Fetch:
    """One source at one commit, with the caches it goes through."""

    def __init__(self, source: HubSource, cache: Cache, key: str) -> None:
        self.source, self.cache, self.key = source, cache, key
        self.hub_cache = Path(constants.HF_HUB_CACHE)
        self.folder = snapshot_folder(self.hub_cache, source.hub, source.revision)
        self.stamps = cache.stamps(self.folder)

    # ---- online

    def fetch(self) -> dict[str, Any]:
        """Download what is missing, verify everything, fetch damaged files once more."""
        self.require_reachable()
        sweep(self.hub_cache, self.source.hub)
        listing = self.listing()
        mark = self.cache.root / "fetched" / self.key
        if not self.folder.exists():
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        bad: list[str] = []
        for _ in range(2):
            self.download(listing)
            bad = self.wrong(listing)
            if not bad:
                return self.reply(list(listing), complete=True, evictable=mark.exists())
            for name in bad:
                forget(self.folder, name)
        raise invalid(
            origin_of(self.source),
            f"corrupt: {bad[0]} does not have the hash that the repository states, fetched twice; it was deleted",
        )

    def require_reachable(self) -> None:
        """Raise Unreachable unless something answers: the client itself would try for half a minute."""
        try:
            get_session().head(constants.ENDPOINT, timeout=REACH_SECONDS, follow_redirects=False)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol) as error:
            raise Unreachable(f"{constants.ENDPOINT} cannot be reached ({type(error).__name__}: {error})") from error
        except httpx2.TransportError:
            return  # it accepts connections; what is wrong shows with the real requests

    def listing(self) -> dict[str, Expected]:
        """Return the wanted files of the commit, none of which leaves its folder."""
        source = self.source
        # The client repeats this request itself.
        rows = list(HfApi().list_repo_tree(source.hub, revision=source.revision, recursive=True))
        files = {row.path: row for row in rows if isinstance(row, RepoFile)}
        for name in files:
            refuse_unsafe_name(name, origin_of(source))
        wanted = select(
            files,
            allow_pickle=source.allow_pickle is not None,
            allow_remote_code=source.allow_remote_code is not None,
        )
        if not weight_files(wanted):
            raise invalid(
                origin_of(source),
                "the repository has no safetensors at its top level; "
                "give a reason under 'allow_pickle' in its row if it has pytorch_model.bin",
            )
        return {
            name: Expected(row.size, row.blob_id, row.lfs.sha256 if row.lfs is not None else None)
            for name in wanted
            for row in (files[name],)
        }

    def download(self, listing: dict[str, Expected]) -> None:
        """Bring the listed files into the snapshot through the library."""
        absent = [name for name in listing if not (self.folder / name).exists()]
        self.cache.make_room(sum(listing[name].size for name in absent), key=self.key, place=self.hub_cache)
        patiently(
            lambda: snapshot_download(
                self.source.hub,
                revision=self.source.revision,
                allow_patterns=[glob.escape(name) for name in listing],
                max_workers=WORKERS,
            )
        )

    def wrong(self, listing: dict[str, Expected]) -> list[str]:
        """Return the names of files that do not have the bytes which the listing states."""
        found = [name for name in listing if (self.folder / name).is_file()]
        hashes = {fact.name: fact for fact in self.stamps.facts(self.folder, found, refresh=True)}
        return [name for name, expected in listing.items() if not self.is_right(hashes.get(name), expected)]

    def is_right(self, fact: FileFact | None, expected: Expected) -> bool:
        """Return whether a file is what the listing states: by sha256, small files by Git object id."""
        if fact is None or fact.size != expected.size:
            return False
        if expected.sha256 is not None:
            return fact.sha256 == expected.sha256
        return git_sha1_of(self.folder / fact.name) == expected.git_sha1

    # ---- offline

    def adopt(self) -> dict[str, Any]:
        """Use what another program left in the Hugging Face cache, checked by the names of its blobs."""
        origin, source = origin_of(self.source), self.source
        try:
            snapshot_download(source.hub, revision=source.revision, local_files_only=True, allow_patterns="*.json")
        except LocalEntryNotFoundError as error:
            raise _not_cached(origin, str(error)) from error
        on_disk = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())
        names = select(on_disk, allow_pickle=source.allow_pickle is not None)
        for fact in self.stamps.facts(self.folder, names):
            name, blob = fact.name, (self.folder / fact.name).resolve()
            if blob.name not in (fact.sha256, git_sha1_of(blob)):
                raise invalid(
                    origin,
                    f"corrupt: {name} does not have the hash {blob.name[:12]}… of its blob; "
                    "fetch it again without offline mode",
                )
        try:
            inspect(self.folder, names, origin, allow_pickle=source.allow_pickle is not None)
        except IncompleteError as error:
            raise _not_cached(origin, str(error)) from error
        return self.reply(list(names), complete=False, evictable=False)

    # ---- both

    def reply(self, names: list[str], *, complete: bool, evictable: bool) -> dict[str, Any]:
        """Return the record of the snapshot."""
        files = self.stamps.facts(self.folder, names)
        kept = Kept(origin=origin_of(self.source), folder=str(self.folder), files=files, evictable=evictable)
        return {"kept": kept.model_dump(), "complete": complete}

    def size(self) -> dict[str, Any]:
        """Return what the headers of the weight files state, without the weights."""
        self.require_reachable()
        found = patiently(lambda: HfApi().get_safetensors_metadata(self.source.hub, revision=self.source.revision))
        counts: dict[str, int] = {}
        weight_bytes = 0
        for file in found.files_metadata.values():
            for dtype, count in file.parameter_count.items():
                counts[dtype] = counts.get(dtype, 0) + count
            weight_bytes += max((tensor.data_offsets[1] for tensor in file.tensors.values()), default=0)
        common = max(counts, key=lambda dtype: counts[dtype]) if counts else None
        stored = TORCH_NAMES.get(common, common.lower()) if common else None
        return {"size": {"parameters": sum(counts.values()), "weight_bytes": weight_bytes, "stored_dtype": stored}}


def _not_cached(origin: str, why: str) -> CheckpointError:
    text = f"not complete in the Hugging Face cache, and offline mode forbids to ask the Hub: {why}"
    return CheckpointError(f"{origin}: {text}", OutcomeKind.UNAVAILABLE)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def _say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer one request: fetch, adopt or size."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    source = HubSource.model_validate(request["source"])
    fetch = Fetch(source, Cache(Path(request["cache"]), request["limit"]), request["key"])
    _say(hub_cache=str(fetch.hub_cache))
    action = "adopt" if request["action"] == "fetch" and constants.HF_HUB_OFFLINE else request["action"]
    try:
        reply = {"fetch": fetch.fetch, "adopt": fetch.adopt, "size": fetch.size}[action]()
    except (CheckpointError, Unreachable, OSError, httpx2.HTTPError, ValueError) as error:
        _say(failure=classify(error, origin_of(source), get_token()))
        return
    _say(**reply)


if __name__ == "__main__":
    main()
