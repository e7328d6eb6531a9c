"""Waiting for a page without ``wait_for_function``, whose eval the site's content security policy refuses."""

from __future__ import annotations

import time
from typing import Any


def until(page: Any, expression: str, seconds: float = 20) -> None:
    """Wait until the JavaScript expression is true in the page. Raises AssertionError when it stays false."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not true within {seconds} s: {expression}")
