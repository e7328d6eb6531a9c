"""Each view works from file:// and under a sub-path, shows hostile text literally, and stays inside the site."""

from __future__ import annotations

import re

import pytest

from tests.browser.waiting import until
from tests.report.synthetic import HOSTILE

VIEWS = {
    "index.html": "#matrix tbody tr",
    "matrix.html": "#view tbody tr",
    "model.html#model=granite-1.0-0b": ".panel .sentence",
    "ops.html#op=aten.mm.default": "#op-title",
    "trends.html": ".heatmap tbody tr",
    "compare.html": "[data-group='Newly failing']",
    "compat.html": ".compat tbody tr",
}


@pytest.mark.parametrize("scheme", ["file", "http"])
@pytest.mark.parametrize("path", VIEWS)
def test_a_view_opens(visit, published, path, scheme):
    page = visit(path, base=published.http_url if scheme == "http" else published.file_url)
    page.wait_for_selector(VIEWS[path])
    assert page.locator("h1").count() == 1
    assert page.locator("[role=alert]").count() == 0
    assert page.evaluate("window.pwned") is None


@pytest.mark.parametrize("path", ["index.html", "matrix.html", "compat.html"])
def test_hostile_names_are_shown_literally(visit, path):
    page = visit(path)
    page.wait_for_selector("tbody th a")
    shown = set(page.locator("tbody th a").all_inner_texts())
    assert {name for name in HOSTILE if "\u202e" not in name} | {"\\u202egpj.exe"} <= shown
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_the_page_of_a_hostile_model(visit, name):
    from urllib.parse import quote

    visible = name.replace("\u202e", "\\u202e")
    page = visit(f"model.html#model={quote(visible, safe='')}")
    page.wait_for_selector(".panel .sentence")
    assert page.locator("h1").inner_text() == visible
    for tab in range(page.locator("[role=tab]").count()):
        page.locator("[role=tab]").nth(tab).click()
        page.wait_for_selector(f"[role=tab]:nth-child({tab + 1})[aria-selected=true]")
    assert page.evaluate("window.pwned") is None


def test_nan_and_infinity_are_shown_as_such(visit, published):
    page = visit("matrix.html#q=ratio>1000000")
    page.wait_for_selector("#view tbody tr")
    page = visit("matrix.html")
    page.wait_for_selector("#view tbody tr")
    cells = page.evaluate(
        "report.open().then((world) => world.cases.filter((c) => typeof c.ratio === 'string').map((c) => c.ratio))"
    )
    texts = page.evaluate("['NaN', 'Infinity', '-Infinity', null].map((value) => report.readable(value))")
    assert texts == ["NaN", "inf", "-inf", "–"]
    assert sorted(cells) == ["Infinity", "NaN"]


def test_times_are_in_the_readers_zone_with_utc_on_hover(visit):
    page = visit("index.html")
    time = page.locator(".night time")
    until(page, "document.querySelector('.night time').title")
    assert time.inner_text() == "6 Nov 2026, 13:00 GMT+9"
    assert time.get_attribute("title") == "2026-11-06 04:00:00 UTC"


def test_numbers_are_rounded_with_the_full_value_on_hover(visit):
    page = visit("model.html#case=granite-1.0-0b/causal-lm/spyre-eager-float16")
    cell = page.locator("tr", has_text="relative L2 error").locator("td.number span").first
    assert re.fullmatch(r"[0-9.]+(e-\d)?", cell.inner_text())
    assert len(cell.get_attribute("title")) > len(cell.inner_text())


def test_stale_reports_say_so(visit):
    page = visit("index.html")
    page.wait_for_selector("#stale:not([hidden])")
    assert "A night may be missing" in page.locator("#stale").inner_text()


def test_without_scripts_the_verdict_and_the_table_are_there(visit):
    page = visit("compat.html", java_script_enabled=False)
    assert page.locator(".compat tbody tr").count() == 28
    page = visit("index.html", java_script_enabled=False)
    assert "need attention" in page.locator("h1").inner_text()


FAILING = "model.html#case=qwen-2.2-56b/causal-lm/spyre-compiled-bfloat16"


@pytest.mark.parametrize("path", [*VIEWS, FAILING])
def test_nothing_sticks_out_on_a_phone(visit, path):
    page = visit(path, viewport={"width": 390, "height": 844})
    page.wait_for_selector(VIEWS.get(path, ".panel .sentence"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_whole_menu_is_in_sight_on_a_phone(visit):
    page = visit("compat.html", viewport={"width": 390, "height": 844})
    edges = page.evaluate("[...document.querySelectorAll('nav a')].map((a) => a.getBoundingClientRect().right)")
    assert len(edges) == 6
    assert max(edges) <= 390


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("path", ["compat.html", "compare.html", "ops.html"])
def test_a_name_of_200_letters_pushes_no_column_out_of_sight(visit, path, width):
    page = visit(path, viewport={"width": width, "height": 844})
    page.wait_for_selector(".scroll tbody tr")
    page.locator("a", has_text="long-xxx").first.wait_for(state="attached")
    tables = page.evaluate(
        """[...document.querySelectorAll('.scroll table')].map((table) =>
        table.querySelectorAll('thead th')[1].getBoundingClientRect().left)"""
    )
    assert tables
    assert max(tables) < width - 60


@pytest.mark.parametrize("path", [*VIEWS, "trends.html#case=granite-1.0-0b/causal-lm/spyre-eager-float16"])
def test_nothing_absent_is_spelled_out(visit, path):
    page = visit(path)
    page.wait_for_selector(VIEWS.get(path, ".split .plot canvas"))
    words = re.findall(r"\b(?:null|undefined|NaN%)\b|\[object", page.locator("main").inner_text())
    assert words == []


def test_a_relaxed_tolerance_and_a_retry_say_why(visit):
    page = visit("matrix.html#q=flag:relaxed")
    page.locator("#view tbody a.cell:not(.dim)").first.click()
    panel = page.locator(".panel")
    assert "Relaxed: the norms of this family compute in 16 bit on the device" in panel.inner_text()
    assert "relaxed" in panel.locator(".tag").all_inner_texts()


def test_dark_follows_the_system_and_the_choice_is_kept(visit):
    page = visit("index.html", color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(22, 22, 22)"
    page.locator("#theme").click()
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    page.reload()
    assert page.evaluate(background) == "rgb(255, 255, 255)"


def test_the_compatibility_table_prints(visit):
    page = visit("compat.html", color_scheme="dark")
    page.emulate_media(media="print")
    assert not page.locator(".shell").is_visible()
    assert page.locator(".compat tbody tr").count() == 28
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_failing_case_names_the_first_wrong_op(visit):
    page = visit(FAILING)
    section = page.locator("section", has_text="Where it first goes wrong").last
    section.wait_for()
    assert "aten.mm.default in model.layers.1.mlp.up_proj is the first op out of proportion." in section.inner_text()
    assert page.get_by_label("Relative L2 error per module, in order of execution").count() == 1
