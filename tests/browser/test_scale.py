"""A large report opens small, filters at once and draws only what is in sight."""

from __future__ import annotations

import pytest

from harness.report import render
from tests.report.synthetic import Spec, runs

FIRST_VIEW_BYTES = 3_000_000
FILTER_MILLISECONDS = 100


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    out = tmp_path_factory.mktemp("large") / "site"
    render(runs(Spec(models=1000, runs=1)), out)
    return out


def test_a_thousand_models(visit, large):
    page = visit("index.html", base=large.as_uri() + "/")
    page.wait_for_selector("#matrix tbody tr")
    loaded = page.evaluate(
        "[...document.querySelectorAll('script[src], link[rel=stylesheet]')].map((n) => n.src || n.href)"
    )
    names = [name.removeprefix(large.as_uri() + "/") for name in loaded]
    size = sum((large / name).stat().st_size for name in [*names, "index.html"])
    assert size < FIRST_VIEW_BYTES / 5
    assert page.locator("#matrix tbody tr").count() < 100
    spent = page.evaluate(
        """(text) => { const input = document.getElementById("query"), start = performance.now();
        input.value = text; input.dispatchEvent(new Event("input")); return performance.now() - start; }""",
        "status:fail ratio>2",
    )
    assert spent < FILTER_MILLISECONDS


def test_scrolling_reaches_the_last_model(visit, large):
    page = visit("matrix.html", base=large.as_uri() + "/")
    page.wait_for_selector("#view tbody tr")
    page.evaluate("document.querySelector('.scroll').scrollTop = 1e9")
    page.wait_for_selector("tr[aria-rowindex='1001']")
    assert page.locator("#view tbody tr").count() < 100
