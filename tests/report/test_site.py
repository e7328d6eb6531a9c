"""The site is whole, static, strict, and holds neither machine paths nor live text of a model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from harness.errors import UsageError
from harness.records import Status
from harness.report import render
from tests.report.synthetic import HOSTILE_TEXT, Spec, runs

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'"
)
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def chunk(site, name):
    text = (site / "data" / f"{name}.js").read_text("utf-8")
    body = re.fullmatch(rf'report\.data\("{name}",(.*)\);\n', text, re.DOTALL)
    return json.loads(body.group(1), parse_constant=pytest.fail)


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "site"
    *old, newest = runs(Spec(models=6, runs=3, hostile=True, missing=2))
    directory = tmp_path_factory.mktemp("run")
    (directory / "logs").mkdir()
    (directory / "logs" / "a.log").write_text(HOSTILE_TEXT + " /home/ci/secret/x.bin\n" * 3, "utf-8")
    results = [seen.model_copy(update={"log": "logs/a.log"}) for seen in newest.results]
    results[1] = results[1].model_copy(update={"log": "../../etc/hostname"})
    facts = render([*old, replace(newest, results=results, directory=directory)], out, now=NOW)
    return out, facts


def test_facts_of_an_incomplete_run(hostile):
    _, facts = hostile
    assert (facts.level, facts.models, facts.cases, facts.runs) == ("incomplete", 16, 64, 3)
    assert facts.sentence.startswith("Incomplete: 62 of 64 planned cases ended; ")
    assert facts.run_id == "20261103T030000Z-000002"


def test_the_pages_hold_no_inline_script_and_nothing_from_elsewhere(hostile):
    site, _ = hostile
    for page in site.glob("*.html"):
        found = Tags(page.read_text("utf-8"))
        policy = [
            value for tag, name, value in found.attributes if name == "content" and value.startswith("default-src")
        ]
        assert policy == [POLICY]

        assert found.tags.count("script") == sum(
            1 for tag, name, _ in found.attributes if (tag, name) == ("script", "src")
        )
        assert not [one for one in found.attributes if one[1] == "style" or one[1].startswith("on")]
        assert not [value for tag, name, value in found.attributes if name == "src" and ":" in value]
        links = [value for tag, name, value in found.attributes if name in ("src", "href")]
        outside = {link for link in links if re.match(r"[a-z]+:|/", link)}
        assert outside <= {"https://github.com/torch-spyre/torch-spyre/issues/1781"}
        local = {link.partition("#")[0] for link in links if link not in outside} - {""}
        assert [link for link in local if not (site / link).is_file()] == []


def test_hostile_names_are_text(hostile):
    site, _ = hostile
    page = Tags((site / "index.html").read_text("utf-8"))
    assert "img" not in page.tags
    names = chunk(site, "matrix")["names"]
    assert '<img src=x onerror="window.pwned=1">' in names
    assert "\\u202egpj.exe" in names
    assert "BaNaNa-Infinity" in names


def test_no_machine_path_anywhere(hostile):
    site, _ = hostile
    for path in site.rglob("*"):
        if path.is_file() and "vendor" not in path.parts:
            text = path.read_text("utf-8")
            assert "/home/" not in text, path
            assert "secret-folder" not in text, path
            assert str(site.parent) not in text, path


def test_logs_are_copied_as_visible_text_and_only_from_the_run_directory(hostile):
    site, _ = hostile
    logs = sorted((site / "logs").iterdir())
    details = [
        case for name in site.glob("data/detail-*.js") for model in chunk(site, name.stem) for case in model["cases"]
    ]
    linked = [case["log"]["path"] for case in details if case.get("log")]
    assert len(linked) == 61
    assert sorted(linked) == [f"logs/{log.name}" for log in logs]
    assert logs[0].read_text("utf-8").startswith("\\x1b[31mred\\x1b[0m \\x00 \\x12 \\ufffe <script>")
    assert logs[0].read_text("utf-8").endswith(" …/secret/x.bin\n" * 3)


def test_the_matrix_and_the_details_agree(hostile):
    site, _ = hostile
    matrix = chunk(site, "matrix")
    statuses = []
    for number in range(len(matrix["starts"])):
        for model in chunk(site, f"detail-{number}"):
            statuses += [case["verdict"]["status"] for case in model["cases"]]
    letters = {"PASS": "P", "FAIL": "F", "XFAIL": "K", "XPASS": "X", "SKIP": "S", "ERROR": "E", "NOTRUN": "N"}
    assert "".join(letters[status] for status in statuses) == matrix["status"]
    assert sum(matrix["counts"]) == len(statuses) == 64


def test_downloads_hold_every_case(hostile):
    site, _ = hostile
    assert len(json.loads((site / "data" / "cases.json").read_text("utf-8"))) == 64
    assert (site / "data" / "cases.csv").read_text("utf-8").count("\n") == 65


def test_the_index_for_programs_says_incomplete(hostile):
    site, facts = hostile
    index = json.loads((site / "site.json").read_text("utf-8"))
    assert (index["level"], index["sentence"]) == ("incomplete", facts.sentence)
    assert sum(index["counts"].values()) == 64


def test_without_a_run_the_site_says_so(tmp_path):
    facts = render([], tmp_path / "site", now=NOW)
    assert (facts.level, facts.run_id) == ("empty", None)
    page = (tmp_path / "site" / "index.html").read_text("utf-8")
    assert "No run yet: this report proves nothing." in page


def test_a_report_replaces_a_report_and_nothing_else(tmp_path):
    out = tmp_path / "site"
    render([], out, now=NOW)
    render(runs(Spec(models=1, runs=1, all_pass=True)), out, now=NOW)
    assert "All 4 cases behaved as expected" in (out / "index.html").read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["site"]
    foreign = tmp_path / "precious"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="holds no report"):
        render([], foreign, now=NOW)
    assert (foreign / "thesis.txt").read_text() == "years of work"


def test_a_failing_render_leaves_the_old_site(tmp_path):
    out = tmp_path / "site"
    render([], out, now=NOW)
    broken = replace(runs(Spec(models=1, runs=1))[0], results=iter([None]))
    with pytest.raises(AttributeError):
        render([broken], out, now=NOW)
    assert "No run yet" in (out / "index.html").read_text("utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_the_package_imports_without_torch_and_pandas():
    code = "import sys, harness.report; print({'torch', 'pandas', 'pyarrow', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_traceback_and_a_log_of_50_megabytes_leave_the_pages_small(tmp_path):
    (source,) = runs(Spec(models=1, runs=1, configurations=1, all_pass=True))
    (seen,) = source.results
    line = "  a line of a hundred characters, as tracebacks have them " + "." * 41 + "\n"
    whole = line * 500_000
    folder = tmp_path / "run"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "a.log").write_text(whole)
    failed = seen.verdict.model_copy(update={"status": Status.FAIL})
    outcome = seen.outcome.model_copy(update={"detail": whole})
    result = seen.model_copy(update={"verdict": failed, "outcome": outcome, "log": "logs/a.log"})
    out = tmp_path / "site"
    render([replace(source, results=[result], directory=folder)], out)
    (log,) = (out / "logs").iterdir()
    assert log.stat().st_size == len(whole)
    sizes = {path: path.stat().st_size for path in out.rglob("*") if path.is_file() and "vendor" not in path.parts}
    assert max(size for path, size in sizes.items() if path != log) < 100_000
    detail = (out / "data" / "detail-0.js").read_text()
    assert f"logs/{log.name}" in detail
    assert '"size":50000000' in detail
