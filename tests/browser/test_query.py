"""Filters live in the URL, exports hold exactly what is shown."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from tests.browser.waiting import until


def shown(page):
    return int(page.locator(".bar .shown").inner_text().split()[0].replace(",", ""))


def ready(page):
    until(page, "document.querySelector('.bar .shown').textContent")
    return page


def test_a_filter_narrows_and_is_saved_in_the_url(visit, published):
    page = ready(visit("matrix.html"))
    assert shown(page) == len(published.statuses)
    page.locator("#query").fill("status:fail,error")
    wanted = [case for case, status in published.statuses.items() if status in ("FAIL", "ERROR")]
    assert shown(page) == len(wanted) > 0
    assert page.url.endswith("#q=status%3Afail%2Cerror")
    again = ready(visit("matrix.html#" + page.url.partition("#")[2]))
    assert shown(again) == len(wanted)
    assert again.locator("#query").input_value() == "status:fail,error"


@pytest.mark.parametrize(
    ("query", "predicate"),
    [
        ("mode:eager", "c.config[1] === 'eager'"),
        ("-mode:eager dtype:bfloat", "c.config[1] !== 'eager' && c.config[2] === 'bfloat16'"),
        ("shape:b1s64 task:causal-lm", "c.config[3] === 'b1s64' && c.model.task === 'causal-lm'"),
        ("ratio>3", "c.ratio !== null && !(report.number(c.ratio) <= 3)"),
        ("share<90", "c.share !== null && c.share * 100 < 90"),
        ("seq:pass>fail", "c.letters().replace(/(.)\\\\1+/g, '$1').includes('PF')"),
        ("count:fail>=2", "[...c.letters()].filter((l) => l === 'F').length >= 2"),
        ("is:different", "new Set(c.letters()).size > 1"),
        ("is:unexpected", "'FAIL ERROR XPASS NOTRUN'.split(' ').includes(c.status)"),
        ("change:regressed", "c.labels.includes('regressed')"),
        ("since:2d", "c.changed() !== null && report.newest() - c.changed() <= 2 * 864e5"),
        ("outcome:timeout", "c.outcome === 'timeout'"),
        ('model:"and & amp"', "c.model.name.includes('and & amp')"),
        ("BaNaNa-Infinity", "c.model.name === 'BaNaNa-Infinity'"),
    ],
)
def test_the_query_language(visit, query, predicate):
    page = ready(visit("matrix.html"))
    page.locator("#query").fill(query)
    script = f"report.open().then((world) => world.cases.filter((c) => {predicate}).length)".replace("\\\\", "\\")
    expected = page.evaluate(script)
    assert shown(page) == expected > 0


def test_ops_are_looked_up_when_they_are_asked_for(visit):
    page = ready(visit("matrix.html"))
    assert page.evaluate("report.opIndex === undefined")
    page.locator("#query").fill("op:aten.mm.default state:cpu_fallback")
    until(page, "report.opIndex !== undefined")
    expected = page.evaluate(
        """report.open().then(async (world) => {
          let count = 0;
          for (const one of world.cases) {
            const cases = (await report.load("detail-" + one.model.chunk))[one.model.place].cases;
            const seen = cases[one.model.cases.indexOf(one)].observations || {};
            const ops = (seen.candidate || { device: { ops: [] } }).device.ops;
            const uses = (test) => ops.some(test);
            if (uses((use) => use.op === "aten.mm.default") && uses((use) => use.state === "cpu_fallback")) count += 1;
          }
          return count;
        })"""
    )
    until(page, f"document.querySelector('.bar .shown').textContent.startsWith('{expected} ')")
    assert expected > 0


def test_sorting_and_grouping(visit):
    page = ready(visit("matrix.html#sort=name&group=family"))
    groups = page.locator("tr.family th").all_inner_texts()
    assert len(groups) == 6
    page.get_by_label("Group models").select_option("")
    page.get_by_label("Sort models").select_option("status")
    first = page.locator("#view tbody tr").first
    assert first.locator(".status.ERROR").count() > 0
    assert "sort=status" in page.url


def test_nan_is_sorted_first_and_above_every_limit(visit):
    page = ready(visit("matrix.html#sort=ratio"))
    first = page.locator("#view tbody tr").first.inner_text()
    assert re.search(r"\b(NaN|inf)\b", first)
    page.locator("#query").fill("ratio>1000000")
    expected = page.evaluate(
        "report.open().then((w) => w.cases.filter((c) => c.ratio !== null && !Number.isFinite(report.number(c.ratio))))"
        ".then((found) => found.length)"
    )
    assert shown(page) == expected > 0


def test_grouping_by_adapter(visit):
    page = ready(visit("matrix.html#group=adapter"))
    heads = page.evaluate("[...document.querySelectorAll('tr.family th')].map((head) => head.firstChild.textContent)")
    assert sorted(heads) == [
        "_scaled_dot_product_fused_attention_overrideable + silu",
        "gelu + native_layer_norm",
        "no op replaced",
        "not told by the device",
    ]
    page.locator("#query").fill("adapter:native_layer_norm")
    expected = page.evaluate(
        "report.open().then((world) => world.cases.filter((c) => ['minilm', 'bge'].includes(c.model.family)).length)"
    )
    assert shown(page) == expected > 0


def test_the_export_is_what_is_shown(visit):
    page = ready(visit("matrix.html#q=" + "status%3Afail"))
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text("utf-8").splitlines()))
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON").click()
    objects = json.loads(Path(download.value.path()).read_text("utf-8"))
    assert len(rows) == len(objects) == shown(page)
    assert {row["status"] for row in rows} == {"FAIL"}
    assert [row["case"] for row in rows] == [one["case"] for one in objects]


def test_tiles_filter_the_matrix(visit, published):
    page = ready(visit("index.html"))
    page.locator(".tile[data-status=FAIL]").click()
    until(page, "document.querySelector('#query').value === 'status:fail'")
    assert shown(page) == sum(1 for status in published.statuses.values() if status == "FAIL")


def test_comparing_two_runs_counts_ways_apart(visit):
    page = visit("compare.html")
    page.wait_for_selector("[data-group]")
    page.locator("summary").click()
    boxes = page.locator(".runs input")
    boxes.nth(5).check()
    until(page, "document.querySelector('summary').textContent.includes('3 of 6')")
    letters = page.evaluate("report.open().then((world) => world.cases.map((c) => c.letters()))")
    failing = sum(1 for one in letters if one[0] in "PKS" and one[-1] in "FEXN")
    assert page.locator("[data-group='Newly failing'] .count").inner_text() == str(failing)
    assert "torch" in page.locator("section", has_text="Environment differences").last.inner_text()
