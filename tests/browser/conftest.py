"""Debian's Chromium through Playwright, and one hostile site for all browser tests.

Without the extra ``browser`` or without Chromium nothing here is collected; the nox session ``browser``
installs both, and an empty collection fails it.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from harness.records import Status
from harness.report import ReportRun, render
from tests.report.synthetic import HOSTILE_TEXT, Spec, runs

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None or find_spec("playwright") is None:
    collect_ignore_glob = ["test_*.py"]


@dataclass(frozen=True)
class Published:
    """The site of the tests, and what is known of its newest run."""

    folder: Path
    file_url: str
    http_url: str
    """Served under a sub-path, as GitHub Pages does."""
    statuses: dict[str, str]
    """Case id to status in the newest run."""


@dataclass
class Watch:
    """What a page did that it must not do."""

    page: Any
    allowed: str
    faults: list[str] = field(default_factory=list)

    def attach(self) -> None:
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("console", lambda line: line.type in ("error", "warning") and self.faults.append(line.text))
        self.page.on("request", self._request)
        self.page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.allowed, "data:", "blob:")):
            self.faults.append(f"request: {request.url}")


def newest_with_files(source: ReportRun, folder: Path) -> ReportRun:
    """The run with logs, and a reproducer for each failing Granite case."""
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "case.log").write_text(f"{HOSTILE_TEXT}\nlast line\n", "utf-8")
    results, reproducers = [], {}
    for seen in source.results:
        results.append(seen.model_copy(update={"log": "logs/case.log"}))
        if seen.verdict.status is Status.FAIL:
            bundle = folder / "repro" / str(len(reproducers))
            bundle.mkdir(parents=True)
            (bundle / "reproduce.py").write_text("print('wrong')\n")
            reproducers[seen.case.id] = bundle
    return replace(source, results=results, directory=folder, reproducers=reproducers)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    root = tmp_path_factory.mktemp("pages")
    folder = root / "some" / "project"
    *old, newest = runs(Spec(models=18, runs=6, hostile=True))
    newest = newest_with_files(newest, tmp_path_factory.mktemp("run"))
    render([*old, newest], folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Published(
        folder=folder,
        file_url=folder.as_uri() + "/",
        http_url=f"http://127.0.0.1:{server.server_address[1]}/some/project/",
        statuses={seen.case.id: seen.verdict.status.value for seen in newest.results},
    )
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Any, published: Published) -> Iterator[Callable[..., Any]]:
    """Open a page of the site; at the end of the test no page may have done what `Watch` forbids."""
    contexts, watches = [], []

    def opened(path: str, *, base: str | None = None, **options: Any) -> Any:
        context = chromium.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "timezone_id": "Asia/Tokyo", **options}
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        root = base or published.file_url
        watch = Watch(page, root)
        watch.attach()
        watches.append(watch)
        page.goto(root + path)
        return page

    yield opened
    faults = [fault for watch in watches for fault in watch.faults]
    for context in contexts:
        context.close()
    assert faults == []
