"""A loopback Hub and a site per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.checkpoints import release
from tests.checkpoints.loopback_hub import Hub
from tests.checkpoints.site import Site


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


@pytest.fixture
def site(tmp_path: Path, hub: Hub) -> Iterator[Site]:
    yield Site(tmp_path, hub)
    release()
