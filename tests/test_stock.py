"""Checkpoints of a run: fetched once, kept while they are used, evicted by need, no request on a warm cache."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import checkpoints
from harness.errors import CheckpointError
from harness.records import Case, Dtype, Inputs, Mode, Role, Task
from harness.settings import Settings
from harness.stock import Stock
from tests.checkpoints.loopback_hub import Hub
from tests.checkpoints.site import hub_source, write_checkpoint
from tests.conformance_site import LLAMA, Finished, Site

CPU = {"target": ["cpu"], "mode": ["eager"], "dtype": ["float16"]}
ONE = 3_000_000
"""Bytes that one of the tiny models fits in, and two do not."""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub
    checkpoints.release()


def case(hub: Hub, folder: Path, name: str) -> Case:
    """A case of a repository of its own."""
    repository = f"acme/{name}"
    commit = hub.add(repository, write_checkpoint(folder / name, elements=50_000))
    return Case(
        id=f"{name}/causal-lm/cpu-eager-float16",
        model=name,
        task=Task.CAUSAL_LM,
        target="cpu",
        mode=Mode.EAGER,
        dtype=Dtype.FLOAT16,
        source=hub_source(commit, repository),
        inputs=Inputs(ids=((1, 2),)),
    )


def stock(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> Stock:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HOME", str(folder / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    settings = Settings(folder / "models.yaml", folder / "cache", folder / "run", cache_limit=limit)
    return Stock(settings)


def test_what_is_in_use_stays_and_the_next_waits_for_its_room(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = case(hub, tmp_path, "a"), case(hub, tmp_path, "b")
    ours = stock(hub, tmp_path, monkeypatch, limit=300_000)
    seen: list[tuple[bool, bool]] = []

    def use_the_other() -> None:
        with ours.using(b) as second:
            seen.append((Path(first.folder).exists(), Path(second.folder).exists()))

    with ours.using(a) as first:
        with ours.using(a) as again:  # two cases of one model at a time
            assert again == first
        other = threading.Thread(target=use_the_other)
        other.start()
        while not hub.asked("/api/models/acme/b/*"):
            other.join(0.05)
        other.join(1.0)  # as long as it likes: there is no room
        assert (Path(first.folder).exists(), other.is_alive(), seen) == (True, True, [])
    other.join(60)
    assert seen == [(False, True)]
    assert len(hub.asked("/content/*", "GET")) == 2, "each was fetched once"


def test_what_can_never_fit_is_told_at_once_and_once(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = stock(hub, tmp_path, monkeypatch, limit=1000)
    large = case(hub, tmp_path, "a")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="no room for") as caught, ours.using(large):
            pass
        assert caught.value.kind == "unavailable"
    assert len(hub.asked("/api/models/acme/a/tree/*")) == 1


@pytest.fixture(scope="module")
def service() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, service: Hub) -> Site:
    path = tmp_path_factory.mktemp("site")
    environ = {"HF_ENDPOINT": service.url, "HF_HOME": str(path / "hf"), "HF_HUB_OFFLINE": "0", "HF_TOKEN": ""}
    site = Site(path, environ=environ)
    rows = {name: {"source": {"hub": f"acme/{name}", "revision": service.add(f"acme/{name}", LLAMA)}} for name in "abc"}
    return site.rows(rows, axes=CPU)


def fetched(site: Site) -> set[str]:
    """Models whose weights lie in the Hugging Face cache."""
    return {path.parts[-4].removeprefix("models--acme--") for path in site.path.glob("hf/hub/*/snapshots/*/*.saf*")}


@pytest.fixture(scope="module")
def capped(site: Site) -> Finished:
    """A run of three models in a cache for one, with two workers."""
    return site.run("capped", "--cache-limit", str(ONE / 2**30), "--workers", "2")


def test_a_run_evicts_by_need_and_never_what_it_uses(site: Site, capped: Finished, service: Hub) -> None:
    assert capped.told == dict.fromkeys("abc", "PASS completed compare")
    assert len(fetched(site)) == 1, "there was room for one at a time"
    assert len(service.asked("/content/*", "GET")) == 3


def test_a_warm_cache_needs_no_request_and_no_reference_forward(site: Site, capped: Finished, service: Hub) -> None:
    (kept,) = fetched(site)
    before = len(service.requests)
    second = site.run("second", "--cache-limit", str(ONE / 2**30), "--model", kept)
    assert second.told == {kept: "PASS completed compare"}
    assert service.requests[before:] == []
    assert {role: o.cached for role, o in second.results[kept].observations.items()} == {
        Role.REFERENCE: True,
        Role.CONTROL: True,
        Role.CANDIDATE: False,
    }
    assert not list((second.directory / "logs").glob("*reference*")), "no reference process was started"
    assert second.results[kept].comparison == capped.results[kept].comparison
    assert "reference" not in second.stored.run.seconds


def test_what_was_evicted_is_fetched_again(site: Site, capped: Finished, service: Hub) -> None:
    gone = min(set("abc") - fetched(site))
    before = len(service.asked("/content/*", "GET"))
    third = site.run("third", "--cache-limit", str(2 * ONE / 2**30), "--model", gone)
    assert third.told == {gone: "PASS completed compare"}
    assert len(service.asked("/content/*", "GET")) == before + 1
    assert len(fetched(site)) == 2, "nothing goes without need"
