"""An axe scan of each view in both themes finds nothing serious."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.test_views import VIEWS

AXE = (Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js").read_text("utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", VIEWS)
def test_no_serious_finding(visit, path, theme):
    page = visit(path, color_scheme=theme)
    page.wait_for_selector(VIEWS[path])
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    serious = [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]
    assert serious == []


def test_the_keyboard_reaches_content_filter_and_cells(visit):
    page = visit("index.html")
    page.wait_for_selector("#matrix tbody tr")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "query"
    page.keyboard.type("granite-1.0-0b")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.column") == "0"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.column") == "1"
    page.keyboard.press("Enter")
    page.wait_for_selector(".panel .sentence")
    assert page.locator("h1").inner_text() == "granite-1.0-0b"


def test_tabs_of_a_model_follow_the_arrow_keys(visit):
    page = visit("model.html#case=granite-1.0-0b/causal-lm/spyre-eager-float16")
    page.locator("[role=tab][aria-selected=true]").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("[role=tab]:nth-child(2)[aria-selected=true]")
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
