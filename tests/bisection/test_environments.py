"""Tests of layered environments with real wheels in a folder, and a real search through them."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from harness.bisection import Answer, Axis, InstallError, Journal, Reading, between, bisect, build, releases
from harness.errors import UsageError


def wheel(folder: Path, version: str, code: str, requires: str = "", name: str = "planted") -> None:
    """Write a wheel of a package with one module."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", code)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path) -> list[str]:
    folder = tmp_path / "wheels"
    for version, answer in (("1.0", 1), ("1.1", 1), ("1.3", 2), ("1.4", 2)):
        wheel(folder, version, f"answer = {answer}\n")
    wheel(folder, "1.2", "answer = 1\n", "Requires-Dist: no-such-package-at-all==9\n")
    return ["--no-index", "--find-links", str(folder)]


def test_a_real_search_through_installed_releases(tmp_path: Path, index: list[str]) -> None:
    def probe(pins: dict[str, str]) -> Answer:
        try:
            layer = build(tmp_path / f"planted-{pins['planted']}", pins, index)
        except InstallError as error:
            return Answer(Reading.UNTESTABLE, str(error))
        code = "import planted, packaging; print(planted.answer)"
        done = subprocess.run([layer.python, "-c", code], capture_output=True, text=True, check=True)
        return Answer(Reading.GOOD if done.stdout == "1\n" else Reading.BAD)

    journal = Journal(tmp_path / "journal.jsonl", "planted")
    found = bisect([Axis("planted", ("1.0", "1.1", "1.2", "1.3", "1.4"))], probe, journal)
    assert found.sentence == "planted 1.1 is good, 1.3 is bad; 1.2 between them cannot be tested"
    assert "no-such-package-at-all" in journal.answers["planted==1.2"][0][1]


def test_releases_of_an_index(index: list[str]) -> None:
    assert releases("planted", "1.0", "1.4", index) == ("1.0", "1.1", "1.2", "1.3", "1.4")
    assert releases("planted", "1.4", "1.3", index) == ("1.4", "1.3")
    with pytest.raises(UsageError, match="planted: the package index has no release 2"):
        releases("planted", "1.0", "2", index)
    with pytest.raises(UsageError, match="planted-not: the package index names no releases"):
        releases("planted-not", "1", "2", index)


def test_order_and_prereleases() -> None:
    versions = ["5.10.0", "5.9.0", "5.11.0rc1", "5.2", "junk", "5.10.1"]
    assert between(versions, "p", "5.2", "5.10.1") == ("5.2", "5.9.0", "5.10.0", "5.10.1")
    assert between(versions, "p", "5.10.1", "5.9.0") == ("5.10.1", "5.10.0", "5.9.0")
    assert between(versions, "p", "5.10.0", "5.11.0rc1") == ("5.10.0", "5.10.1", "5.11.0rc1")
    with pytest.raises(UsageError, match="p: Invalid version: 'new'"):
        between(versions, "p", "new", "5.2")
