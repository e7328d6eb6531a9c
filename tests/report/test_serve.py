"""The report is served to this machine alone, and made anew while it is open."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime

import pytest

from harness.report import SiteServer, render, serve
from tests.report.synthetic import Spec, runs


def get(url, host=None):
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.status, answer.headers, answer.read().decode()


@pytest.fixture
def site(tmp_path):
    render(runs(Spec(models=1, runs=1, all_pass=True)), tmp_path / "site", now=datetime(2026, 11, 2, tzinfo=UTC))
    return tmp_path / "site"


def test_pages_are_served_uncached(site):
    with SiteServer(site) as server:
        status, headers, body = get(server.url)
    assert server.url.startswith("http://127.0.0.1:")
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    assert "All 4 cases behaved as expected" in body


@pytest.mark.parametrize(
    ("path", "host", "status"), [("", "evil.example:80", 403), ("data/", None, 404), ("../secret", None, 404)]
)
def test_others_and_listings_are_refused(site, path, host, status):
    (site.parent / "secret").write_text("x")
    with SiteServer(site) as server, pytest.raises(urllib.error.HTTPError) as refusal:
        get(server.url + path, host)
    assert refusal.value.code == status
    refusal.value.close()


def test_refresh_makes_the_report_anew(site):
    stop, seen = threading.Event(), []

    def refresh():
        render(runs(Spec(models=2, runs=2, all_pass=True)), site)
        seen.append(get(address[0])[2])
        stop.set()

    address = []
    serve(site, refresh=refresh, every=0.01, announce=address.append, stop=stop)
    assert "All 8 cases behaved as expected" in seen[0]
