"""The real huggingface_hub client against a loopback Hub that misbehaves: one scripted fault per scenario.

The scenarios of a run share a pool of threads, since most of their time is the client's start and waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from harness.checkpoints import release
from tests.checkpoints.loopback_hub import GOOD_TOKEN, Entry, Fault, Hub, Seen
from tests.checkpoints.site import REPOSITORY, Site, hub_source, write_checkpoint

WEIGHTS = "model.safetensors"
SHARD = "model-00001-of-00002.safetensors"
NO_COMMIT = "0" * 40


@dataclass(frozen=True)
class Scenario:
    """A repository, what is wrong with it or its service, and how resolving it must end."""

    name: str
    kind: str
    words: str = ""
    script: Callable[[Hub], None] = lambda hub: None
    """Faults of the service."""
    spoil: Callable[[Path], None] = lambda folder: None
    """Faults of the files before they are served."""
    shards: int = 1
    access: dict[str, Any] = field(default_factory=dict)
    token: str | None = None
    environ: dict[str, str] = field(default_factory=dict)
    timeout: float = 60.0
    commit: str | None = None
    """Asked for instead of the one that is served."""
    repository: str = REPOSITORY
    content_requests: int | None = None
    """How often large files must have been asked for."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Ending:
    """What is left when a scenario is over."""

    kind: str
    words: str
    site: Site
    requests: list[Seen]
    unused: list[Fault]


def play(scenario: Scenario, root: Path) -> Ending:
    environ = scenario.environ | ({"HF_TOKEN": scenario.token} if scenario.token else {})
    with Hub() as hub:
        site = Site(root, hub, **environ)
        folder = write_checkpoint(root / "source", shards=scenario.shards)
        scenario.spoil(folder)
        commit = hub.add(REPOSITORY, folder, **scenario.access)
        scenario.script(hub)
        source = hub_source(scenario.commit or commit, scenario.repository)
        return Ending(*site.outcome(source, timeout=scenario.timeout), site, hub.requests, hub.faults)


def list_hostile_name(hub: Hub) -> None:
    ((commit, files),) = hub.repositories[REPOSITORY].commits.items()
    hub.repositories[REPOSITORY].commits[commit] = {**files, "../evil\n.json": Entry.of(files["config.json"].path, "x")}


def spoil_listing(hub: Hub) -> None:
    hub.spoil("tree", "status", status=429, headers={"Retry-After": "0"})
    hub.spoil("tree", "reset")


def spoil_small_file(hub: Hub) -> None:
    hub.spoil("resolve", "status", file="config.json", method="GET")
    hub.spoil("resolve", "corrupt", file="config.json", method="GET")


def spoil_large_file(hub: Hub) -> None:
    hub.spoil("resolve", "reset", file=WEIGHTS, method="HEAD")
    hub.spoil("content", "status")


def spoil_bodies(hub: Hub) -> None:
    hub.spoil("content", "drop", at=1000)
    hub.spoil("content", "short", at=1000)
    hub.spoil("content", "corrupt")


SCENARIOS = (
    Scenario("nothing is wrong", "ok", content_requests=1),
    Scenario("the listing answers 429, then is reset", "ok", script=spoil_listing),
    Scenario("a small file answers 503, then is corrupt", "ok", script=spoil_small_file, content_requests=1),
    Scenario("HEAD is reset, then the file answers 503", "ok", script=spoil_large_file, content_requests=2),
    Scenario("a body breaks off, then is short, then corrupt", "ok", script=spoil_bodies, content_requests=4),
    Scenario(
        "a body stalls",
        "ok",
        script=lambda hub: hub.spoil("content", "stall", at=100, seconds=20),
        environ={"HF_HUB_DOWNLOAD_TIMEOUT": "2"},
        content_requests=2,
    ),
    Scenario(
        "body is corrupt always",
        "invalid_checkpoint",
        f"corrupt: {WEIGHTS} does not have the hash that the repository states, fetched twice",
        script=lambda hub: hub.spoil("content", "corrupt", times=-1),
    ),
    Scenario(
        "file answers 503 always",
        "unavailable",
        "503",
        script=lambda hub: hub.spoil("content", "status", times=-1),
        content_requests=4,
    ),
    Scenario(
        "tree answers 503 always",
        "unavailable",
        "not fetched within 4 s",
        script=lambda hub: hub.spoil("tree", "status", times=-1),
        timeout=4,
    ),
    Scenario(
        "body stalls always",
        "unavailable",
        "not fetched within 4 s",
        script=lambda hub: hub.spoil("content", "stall", at=100, seconds=60, times=-1),
        timeout=4,
    ),
    Scenario(
        "commit is never named",
        "unavailable",
        "the Hub did not deliver",
        script=lambda hub: hub.spoil("resolve", "no-commit", times=-1),
    ),
    # ---- access
    Scenario("gated, no token", "gated", "is gated and accept its terms", access={"gated": "terms"}),
    Scenario(
        "gated, not on the list",
        "gated",
        "its token is not on the list",
        access={"gated": "denied"},
        token=GOOD_TOKEN,
    ),
    Scenario("gated, accepted", "ok", access={"gated": "terms"}, token=GOOD_TOKEN),
    Scenario("private, no token", "gated", "missing, or private and no valid token", access={"private": True}),
    Scenario("token is wrong", "gated", "the Hub refuses the token", token="hf_wrongwrongwrong"),
    Scenario("missing, no token", "gated", "missing, or private and no valid token", repository="acme/none"),
    Scenario(
        "missing, token",
        "invalid_checkpoint",
        "missing, or private and this token may not see it",
        repository="acme/none",
        token=GOOD_TOKEN,
    ),
    Scenario("missing commit", "invalid_checkpoint", "has no such commit", commit=NO_COMMIT),
    # ---- contents
    Scenario(
        "a Git LFS pointer for weights",
        "invalid_checkpoint",
        f"{SHARD} is a Git LFS pointer",
        spoil=lambda folder: (folder / SHARD).write_text("version https://git-lfs.github.com/spec/v1\n") and None,
        shards=2,
    ),
    Scenario(
        "only a pickle",
        "invalid_checkpoint",
        "give a reason under 'allow_pickle'",
        spoil=lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin") and None,
        content_requests=0,
    ),
    Scenario(
        "a hostile name in the listing",
        "invalid_checkpoint",
        "leaves the checkpoint's folder",
        script=list_hostile_name,
        content_requests=0,
    ),
)


@pytest.fixture(scope="module")
def endings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Ending]]]:
    chosen = [
        item.callspec.params["scenario"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    with ThreadPoolExecutor(4) as pool:
        yield {
            scenario.name: pool.submit(play, scenario, tmp_path_factory.mktemp("site", numbered=True))
            for scenario in chosen
        }
    release()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_scenario(scenario: Scenario, endings: dict[str, Future[Ending]]) -> None:
    ending = endings[scenario.name].result()
    assert (ending.kind, scenario.words in ending.words) == (scenario.kind, True), ending.words
    for secret in ("secretsignature", scenario.token or "secretsignature"):
        assert secret not in ending.words
    assert "\n" not in ending.words
    large = [seen for seen in ending.requests if seen.path.startswith("/content/") and seen.method == "GET"]
    assert scenario.content_requests in (None, len(large))
    assert [fault for fault in ending.unused if fault.times > 0] == [], "every fault happened"
    assert not any(seen.authorized for seen in large), "the token goes to the Hub, not to its content service"
    assert list(ending.site.root.rglob("*.incomplete")) == []
    assert list(ending.site.root.rglob("evil*")) == []
    if ending.kind == "ok":
        assert float(load_file(Path(ending.words) / WEIGHTS)["w0"][-1]) == 1.0
    elif scenario.shards == 1:
        weights = [blob for blob in ending.site.hub_cache.rglob("blobs/*") if blob.stat().st_size > 2000]
        assert weights == [], "unverified weights stay nowhere"
