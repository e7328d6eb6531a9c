"""Which releases the upstream matrix means, and what it records where one cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import combinations, environment, store
from harness.combinations import Choice, Request, choose
from harness.records import Status
from tests.bisection.test_environments import wheel

TRANSFORMERS = ("5.24.0", "5.23.1", "5.23.0", "5.22.0", "5.22.2", "5.21.0", "5.25.0rc1", "odd")
TORCH = ("2.15.0", "2.14.1", "2.14.1+cu130", "2.13.0", "2.13.0+cpu", "2.12.1", "2.12.1+cpu", "2.12.0+cpu", "2.11.0")
MANIFEST = Path(__file__).parent.parent / "models.yaml"


@pytest.mark.parametrize(
    ("which", "choice"),
    [
        ("pinned", Choice("5.23.1", pinned=True)),
        ("previous", Choice("5.22.2")),
        ("before-previous", Choice("5.21.0")),
        ("newest", Choice("5.24.0")),
    ],
)
def test_minors_before_the_pinned_one_and_the_newest(which: str, choice: Choice) -> None:
    assert choose("transformers", which, TRANSFORMERS, "5.23.1") == choice


def test_an_index_that_ends_early() -> None:
    assert choose("transformers", "newest", TRANSFORMERS[1:], "5.23.1") == Choice("5.23.1", pinned=True)
    reason = "the index has no before-previous minor release of transformers before 5.22.0"
    assert choose("transformers", "before-previous", TRANSFORMERS, "5.22.0") == Choice(None, reason)


@pytest.mark.parametrize(
    ("which", "choice"),
    [
        ("previous", Choice("2.12.1+cpu")),
        ("before-previous", Choice("2.11.0", "the index has no CPU build of it for this machine")),
        ("newest", Choice("2.15.0", "the index has no CPU build of it for this machine")),
    ],
)
def test_where_plain_builds_are_for_cuda_cpu_builds_alone_count(which: str, choice: Choice) -> None:
    assert choose("torch", which, TORCH, "2.13.0", cpu_builds=True) == choice
    assert choose("torch", "newest", TORCH, "2.13.0") == Choice("2.15.0")


def request(tmp_path: Path, **rest: bool) -> Request:
    """A request over wheels whose next release cannot be installed."""
    pinned = combinations.installed("transformers")
    for version, needs in ((pinned, ""), ("99.0", "Requires-Dist: no-such-package-at-all==9\n")):
        wheel(tmp_path / "wheels", version, "", needs, name="transformers")
    options = ("--no-index", "--find-links", str(tmp_path / "wheels"))
    return Request(MANIFEST, "smoke", tmp_path / "environments", tmp_path / "run", pip_options=options, **rest)


def test_a_release_that_cannot_be_installed_is_recorded_with_the_reason(tmp_path: Path) -> None:
    said, status = combinations.run("transformers", "newest", request(tmp_path))
    stored = store.read_run(tmp_path / "run")
    assert status == stored.run.exit_status == 1
    assert said.startswith("transformers 99.0: NOTRUN, cannot be installed: transformers==99.0: ")
    assert {result.verdict.status for result in stored.results} == {Status.NOTRUN}
    assert "no-such-package-at-all" in stored.results[0].verdict.sentence
    assert stored.missing == ()
    versions = {one.name: one.version for one in stored.run.environment.packages}
    assert versions == {one.name: one.version for one in environment.packages()} | {"transformers": "99.0"}


def test_what_may_be_missing_is_recorded_and_no_failure(tmp_path: Path) -> None:
    asked = request(tmp_path, missing_ok=True)
    said, status = combinations.run("transformers", "previous", asked)
    assert (status, "has no previous minor release" in said) == (0, True)
    assert store.read_run(tmp_path / "run").run.totals.keys() == {Status.NOTRUN}
