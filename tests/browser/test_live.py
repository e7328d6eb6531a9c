"""A page that is open while a run goes on shows the new state by itself."""

from __future__ import annotations

from harness.report import SiteServer, render
from tests.report.synthetic import Spec, runs


def test_an_open_page_follows_the_run(visit, tmp_path):
    render(runs(Spec(models=1, runs=1, missing=2, all_pass=True)), tmp_path / "site")
    with SiteServer(tmp_path / "site") as server:
        page = visit("index.html", base=server.url)
        assert "Incomplete: 2 of 4" in page.locator("h1").inner_text()
        page.wait_for_timeout(3500)
        render(runs(Spec(models=1, runs=1, all_pass=True)), tmp_path / "site")
        page.locator("h1", has_text="All 4 cases behaved as expected").wait_for()
        page.goto("about:blank")
