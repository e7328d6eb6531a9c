"""Three readers find their answer within three clicks and 20 seconds from the overview."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path

import pytest

from tests.browser.waiting import until


class Reader:
    """Counts clicks and seconds from the overview."""

    def __init__(self, page):
        self.page, self.clicks, self.started = page, 0, time.monotonic()

    def click(self, locator):
        locator.click()
        self.clicks += 1

    def done(self):
        assert self.clicks <= 3
        assert time.monotonic() - self.started < 20


@pytest.fixture
def reader(visit):
    return Reader(visit("index.html"))


def test_a_compiler_engineer_gets_the_op_and_the_reproducer(reader):
    """Which op broke Granite last night; give me the reproducer."""
    page = reader.page
    page.locator("#query").fill("family:granite status:fail outcome:unsupported_op")
    reader.click(page.locator("a.cell.FAIL").first)
    page.wait_for_selector(".panel .sentence")
    assert "aten.cumsum.default" in page.locator(".panel .sentence").inner_text()
    with page.expect_download() as download:
        reader.click(page.get_by_role("link", name="Download the reproducer"))
    with zipfile.ZipFile(Path(download.value.path())) as archive:
        assert [Path(name).name for name in archive.namelist()] == ["reproduce.py"]
    reader.done()


def test_a_release_manager_sees_what_changed_since_the_last_release(reader):
    """What changed since the last release: newly failing, newly passing, and the environment."""
    page = reader.page
    reader.click(page.get_by_role("link", name="Compare"))
    reader.click(page.locator("summary", has_text="Choose runs"))
    reader.click(page.locator(".runs input").last)
    # The list of runs names every date already: what counts is the comparison drawn anew.
    until(page, "document.querySelector('#view').innerText.includes('package torch')")
    text = page.locator("#view").inner_text()
    assert "newly failing" in text
    assert "package torch" in text
    assert "2.13.1" in text
    reader.done()


def test_a_model_owner_learns_whether_and_with_which_versions(reader):
    """Is my model supported, and with which versions."""
    page = reader.page
    reader.click(page.get_by_role("link", name="Compatibility"))
    line = page.locator(".compat tbody tr", has_text="qwen-1.2-14b")
    assert line.locator(".support").inner_text().endswith("verified")
    facts = page.locator(".facts").first.inner_text()
    assert "2.13.1" in facts
    assert "5.24.0" in facts
    reader.done()
