"""A report on this machine's loopback address, made anew while a run goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LOOPBACK = "127.0.0.1"
REFRESH_SECONDS = 5.0


class _Handler(SimpleHTTPRequestHandler):
    """Files of the site to readers on this machine: other names for it are refused (DNS rebinding)."""

    def do_GET(self) -> None:
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in (LOOPBACK, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN, "Only for this machine")
            return
        super().do_GET()

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        super().end_headers()

    def list_directory(self, path: object) -> None:
        """No listings: the pages are the way in."""
        self.send_error(HTTPStatus.NOT_FOUND, "No such page")

    def log_message(self, format: str, *args: object) -> None:
        """Requests of one's own browser are no news."""


class SiteServer:
    """Serves a folder from a thread between `start` and `stop`; also a context manager."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        """Bind to the loopback address; port 0 takes a free one. Raises OSError when the port is taken."""
        self._server = ThreadingHTTPServer((LOOPBACK, port), partial(_Handler, directory=str(directory)))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="report", daemon=True)

    @property
    def url(self) -> str:
        """Where the report is."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}/"

    def __enter__(self) -> SiteServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(
    directory: Path,
    *,
    port: int = 0,
    refresh: Callable[[], object] | None = None,
    every: float = REFRESH_SECONDS,
    announce: Callable[[str], object] = print,
    stop: threading.Event | None = None,
) -> None:
    """Serve the report in `directory` until interrupted, or until `stop` is set.

    `refresh` renders the report anew; it is called every `every` seconds, and open pages reload when the
    report has changed. `announce` gets the address once it is open.
    """
    ended = stop or threading.Event()
    with SiteServer(directory, port) as server:
        announce(server.url)
        try:
            while not ended.wait(every):
                if refresh:
                    refresh()
        except KeyboardInterrupt:
            return
