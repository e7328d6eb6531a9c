"""Sources on the Hub: what is fetched, what is served without a request, what an offline or second user sees."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from safetensors.numpy import load_file

from harness.checkpoints import describe, locks, release
from harness.checkpoints.cache import Cache
from harness.checkpoints.hub import key_of
from harness.checkpoints.resolve import Facts
from harness.errors import CheckpointError
from tests.checkpoints.loopback_hub import Hub
from tests.checkpoints.site import REPOSITORY, Site, hub_source, write_checkpoint

WEIGHTS = "model.safetensors"


def served(hub: Hub, site: Site, **access: str | bool) -> str:
    return hub.add(REPOSITORY, write_checkpoint(site.root / "source"), **access)


def test_everything_comes_from_the_pinned_commit_and_comes_once(hub: Hub, site: Site) -> None:
    # weights, tokenizer and config of one commit, another one served beside it
    old = hub.add(REPOSITORY, write_checkpoint(site.root / "old", value=1.0))
    new = hub.add(REPOSITORY, write_checkpoint(site.root / "new", value=2.0))
    checkpoint = site.resolve(hub_source(old))
    folder = Path(checkpoint.folder)
    assert [fact.name for fact in checkpoint.files] == ["config.json", "model.safetensors", "tokenizer.json"]
    assert json.loads((folder / "tokenizer.json").read_text()) == {"model": {"vocab": {"1.0": 0}}}
    assert float(load_file(folder / WEIGHTS)["w0"][0]) == 1.0
    assert checkpoint.origin == f"hub:{REPOSITORY}@{old}"
    assert (checkpoint.revision, checkpoint.format, checkpoint.stored_dtype) == (old, "safetensors", "float32")
    assert (checkpoint.architecture, checkpoint.model_type, checkpoint.parameters) == ("LlamaForCausalLM", "llama", 600)
    assert not hub.asked(f"*{new}*")
    hub.requests.clear()
    assert site.resolve(hub_source(old)) == site.resolve(hub_source(old), offline=True) == checkpoint
    assert describe(hub_source(old), cache=site.cache, base=site.root, environ=site.environ) == Facts(
        parameters=600, weight_bytes=2472, stored_dtype="float32"
    )
    assert hub.requests == [], "a warm cache is served without any request"


def test_size_is_known_from_the_headers_alone(hub: Hub, site: Site) -> None:
    commit = hub.add(REPOSITORY, write_checkpoint(site.root / "source", shards=2, elements=400_000))
    known = describe(hub_source(commit), cache=site.cache, base=site.root, environ=site.environ)
    assert known == Facts(parameters=800_000, weight_bytes=1_600_000, stored_dtype="float16")
    assert [seen.range for seen in hub.asked("/content/*", "GET")] == ["bytes=0-100000"] * 2


def test_size_of_a_gated_repository_is_unknown(hub: Hub, site: Site) -> None:
    source = hub_source(served(hub, site, gated="terms"))
    assert describe(source, cache=site.cache, base=site.root, environ=site.environ) is None


# ---- what a repository may hold


def test_only_checkpoint_files_are_fetched_and_code_where_allowed(hub: Hub, site: Site) -> None:
    folder = write_checkpoint(site.root / "source")
    others = ("pytorch_model.bin", "modeling.py", "onnx/model.onnx", "consolidated.safetensors", "README.md", "a.png")
    for name in (*others, "1_Pooling/config.json", "chat_template.jinja", "merges.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    commit = hub.add(REPOSITORY, folder)
    checkpoint = site.resolve(hub_source(commit, allow_pickle="both formats, one rule"))
    wanted = ["1_Pooling/config.json", "chat_template.jinja", "config.json", "merges.txt", WEIGHTS, "tokenizer.json"]
    assert [fact.name for fact in checkpoint.files] == wanted
    assert not any(hub.asked(f"*{name}") for name in others)
    allowed = site.resolve(hub_source(commit, allow_remote_code="reviewed at this commit"))
    assert [fact.name for fact in allowed.files] == sorted([*wanted, "modeling.py"])
    assert (checkpoint.allow_remote_code, allowed.allow_remote_code) == (False, True)


def test_an_allowed_pickle_is_fetched(hub: Hub, site: Site) -> None:
    folder = write_checkpoint(site.root / "source")
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    commit = hub.add(REPOSITORY, folder)
    assert site.resolve(hub_source(commit, allow_pickle="published so")).format == "pickle"


def test_a_listing_in_pages_and_a_xet_service_that_hangs(tmp_path: Path) -> None:
    with Hub(page=2, xet=True) as hub:
        site = Site(tmp_path, hub)
        assert len(site.resolve(hub_source(served(hub, site))).files) == 3
        assert len(hub.asked("*cursor=2")) == 2
        assert not hub.asked("*xet*")


# ---- offline


def test_offline_uses_what_another_program_left(hub: Hub, site: Site) -> None:
    old = hub.add(REPOSITORY, write_checkpoint(site.root / "old", value=1.0))
    digest = site.resolve(hub_source(old)).digest
    shutil.rmtree(site.cache)
    home = site.hub_cache / "models--acme--tiny"
    shutil.rmtree(home / "trees")
    new = "f" * 40
    write_checkpoint(home / "snapshots" / new, value=2.0)
    (home / "refs").mkdir(exist_ok=True)
    (home / "refs" / "main").write_text(new)
    hub.requests.clear()
    checkpoint = site.resolve(hub_source(old), offline=True)
    assert (checkpoint.digest, Path(checkpoint.folder).name) == (digest, old)
    shutil.rmtree(home / "snapshots" / old)
    site.environ["HF_HUB_OFFLINE"] = "1"  # the user's own switch counts as well
    kind, text = site.outcome(hub_source(old))
    assert (kind, "offline mode forbids" in text) == ("unavailable", True), text
    assert hub.requests == []


# ---- a cache that was damaged since


def flip_a_byte(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "one byte cut": lambda data: data[:-1],
    "half cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "one byte flipped": flip_a_byte,
    "Git LFS pointer": lambda data: b"version https://git-lfs.github.com/spec/v1\n",
    "header of 2^63": lambda data: b"\0\0\0\0\0\0\0\x80",
}


def test_damage_and_loss_are_named_offline_and_mended_online(hub: Hub, site: Site) -> None:
    source = hub_source(hub.add(REPOSITORY, write_checkpoint(site.root / "source", shards=2)))
    folder = Path(site.resolve(source).folder)
    first, second = (folder / f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    whole = first.read_bytes()
    for name, damage in DAMAGE.items():
        first.resolve().write_bytes(damage(whole))
        kind, text = site.outcome(source, offline=True)
        assert (kind, f"is corrupt: {first.name} has" in text) == ("invalid_checkpoint", True), (name, text)
    first.resolve().write_bytes(whole)
    second.unlink()
    kind, text = site.outcome(source, offline=True)
    assert (kind, f"is incomplete: {second.name} is missing" in text) == ("unavailable", True), text
    record = Cache(site.cache).record(key_of(source))
    record.rename(record.with_suffix(".aside"))  # as if another program had fetched half of it
    kind, text = site.outcome(source, offline=True)
    assert (kind, f"names '{second.name}', not there" in text) == ("unavailable", True), text
    first.resolve().write_bytes(flip_a_byte(whole))
    hub.requests.clear()
    assert site.outcome(source)[0] == "ok"
    assert (first.read_bytes() == whole, second.is_file()) == (True, True)
    assert len(hub.asked("/content/*", "GET")) == 1, "the damaged shard is fetched, the lost link is made again"


# ---- the network


def test_an_unreachable_endpoint_is_tried_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    site = Site(tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{port}")
    before = time.monotonic()
    kind, text = site.outcome(hub_source("0" * 40))
    first = time.monotonic() - before
    assert (kind, "cannot be reached (ConnectError" in text) == ("unavailable", True), text
    assert site.outcome(hub_source("1" * 40))[0] == "unavailable"
    assert time.monotonic() - before - first < first / 2, "the second time nobody is asked"
    assert first < 60


# ---- two users of one cache


def test_two_processes_on_one_model_both_finish(hub: Hub, site: Site) -> None:
    source = hub_source(served(hub, site))
    hub.spoil("content", "slow", seconds=0.5)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: site.resolve(source), range(2))
    assert first == second
    assert len(hub.asked("/content/*", "GET")) == 1


def test_a_held_lock_is_named_after_a_bounded_wait(hub: Hub, site: Site) -> None:
    source = hub_source(served(hub, site))
    lock = Cache(site.cache).lock(key_of(source))
    with locks.exclusive(lock, timeout=1):
        kind, text = site.outcome(source, timeout=0.2)
    assert (kind, str(lock) in text, f"process {os.getpid()}" in text) == ("unavailable", True, True), text


def test_a_lock_of_another_program_is_named(hub: Hub, site: Site) -> None:
    source = hub_source(served(hub, site))
    oid = hub.repositories[REPOSITORY].commits[source.revision][WEIGHTS].sha256
    lock = site.hub_cache / ".locks" / "models--acme--tiny" / f"{oid}.lock"
    with locks.exclusive(lock, timeout=1):
        kind, text = site.outcome(source, timeout=6)
    assert (kind, f"another program holds the lock {lock}" in text) == ("unavailable", True), text


def test_the_fetching_process_ends_with_its_parent(hub: Hub, site: Site) -> None:
    source = hub_source(served(hub, site))
    hub.spoil("content", "stall", at=100, seconds=60, times=-1)
    parent = subprocess.Popen(
        [sys.executable, "-c", RESOLVE, source.model_dump_json(), str(site.cache)], env=site.environ
    )
    wait_until(lambda: bool(hub.asked("/content/*", "GET")))
    (child,) = psutil.Process(parent.pid).children()
    parent.kill()
    parent.wait()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    hub.faults.clear()
    assert list(site.hub_cache.rglob("*.incomplete"))
    assert site.outcome(source)[0] == "ok"
    assert not list(site.hub_cache.rglob("*.incomplete"))


RESOLVE = """
import sys, pathlib
from harness.checkpoints import resolve
from harness.records import HubSource
resolve(HubSource.model_validate_json(sys.argv[1]), cache=pathlib.Path(sys.argv[2]), base=pathlib.Path())
"""


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- room


def test_no_download_begins_without_room(hub: Hub, site: Site) -> None:
    kind, text = site.outcome(hub_source(served(hub, site)), cache_limit=1000)
    assert (kind, "no room for" in text) == ("unavailable", True), text
    assert not hub.asked("*/resolve/*")


def test_room_is_made_from_what_the_harness_fetched_itself(hub: Hub, site: Site) -> None:
    mine = hub.add("acme/mine", write_checkpoint(site.root / "mine", value=1.0, elements=50_000))
    users = hub.add("acme/users", write_checkpoint(site.root / "users", value=2.0, elements=50_000))
    (site.hub_cache / "models--acme--users" / "snapshots" / users).mkdir(parents=True)
    for repository, commit in (("acme/mine", mine), ("acme/users", users)):
        site.resolve(hub_source(commit, repository))
    cache = Cache(site.cache, 100_000)
    with pytest.raises(CheckpointError, match="no room"):  # both are in use by this process
        cache.make_room(1)
    release()
    cache.make_room(1)
    assert not (site.hub_cache / "models--acme--mine").exists()
    assert site.outcome(hub_source(users, "acme/users"), offline=True)[0] == "ok"
    assert site.outcome(hub_source(mine, "acme/mine"), offline=True)[0] == "unavailable"
