"""How a report opens in Chromium: time until its first view shows cases, bytes read, JavaScript heap."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

PATIENCE = 120
"""Seconds that a first view may take."""


@dataclass(frozen=True)
class Opened:
    """The first view; None where it never came."""

    seconds: float | None = None
    """Median of three, each in a fresh context."""
    read: int = 0
    """Bytes that came over the wire until then."""
    heap: int = 0
    """Bytes."""

    def cells(self) -> list[str]:
        """Columns of the table."""
        if self.seconds is None:
            return [f"none in {PATIENCE} s", "–", "–"]
        return [f"{self.seconds:.1f} s", f"{self.read / 1e6:,.1f} MB", f"{self.heap / 1e6:,.0f} MB"]


class _Counting(SimpleHTTPRequestHandler):
    """Serves files and counts what it sent."""

    sent = 0

    def copyfile(self, source: Any, outputfile: Any) -> None:
        before = source.tell()
        super().copyfile(source, outputfile)
        _Counting.sent += source.tell() - before

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve a folder on the loopback address. Allure's report does not open from the file system."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Counting, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/index.html"
    server.shutdown()
    server.server_close()


def opened(site: Path, selector: str) -> Opened:
    """Open a report three times, each in a fresh context."""
    from playwright.sync_api import Error, sync_playwright

    with served(site) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            seen = [_once(browser, url, selector) for _ in range(3)]
        except Error:
            return Opened()
        finally:
            browser.close()
    return Opened(median(one.seconds or 0 for one in seen), seen[-1].read, max(one.heap for one in seen))


def _once(browser: Any, url: str, selector: str) -> Opened:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    before, started = _Counting.sent, time.monotonic()
    page.goto(url, wait_until="commit")
    page.wait_for_selector(selector)
    seconds = time.monotonic() - started
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    context.close()
    return Opened(seconds, _Counting.sent - before, int(metrics["JSHeapUsedSize"]))
