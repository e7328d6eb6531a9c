"""Takes secrets out of texts that others wrote, before they reach a message, a log or a report."""

from __future__ import annotations

import re

_RULES = (
    (re.compile(r"\bhf_[A-Za-z0-9]{4,}"), "hf_***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}"), r"\1 ***"),
    (re.compile(r"(?i)(authorization['\"]?\s*[:=]\s*)['\"]?[^'\",}\s]+"), r"\1***"),
    (re.compile(r"(\w+://)[^/@\s]+@"), r"\1"),
    (re.compile(r"(https?://[^\s?'\"<>]+)\?[^\s'\"<>]+"), r"\1?***"),
)


def scrub(text: str, secret: str | None = None) -> str:
    """Return TEXT without tokens, credentials in addresses and signed queries, and without SECRET itself."""
    if secret:
        text = text.replace(secret, "***")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def one_line(text: str, limit: int = 400) -> str:
    """Return TEXT on one line, cut to LIMIT characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
