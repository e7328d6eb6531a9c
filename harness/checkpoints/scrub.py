"""Takes secrets out of texts that others wrote, before they reach a message, a log or a report."""

from __future__ import annotations

import re

_RULES = (
    (("hf_",), re.compile(r"\bhf_[A-Za-z0-9]{4,}"), "hf_***"),
    (("bearer", "basic"), re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}"), r"\1 ***"),
    (("authorization",), re.compile(r"(?i)(authorization['\"]?\s*[:=]\s*)['\"]?[^'\",}\s]+"), r"\1***"),
    (("://",), re.compile(r"(\w+://)[^/@\s]+@"), r"\1"),
    (("://",), re.compile(r"(https?://[^\s?'\"<>]+)\?[^\s'\"<>]+"), r"\1?***"),
)
"""Words of which a text needs one, in small letters, before a pattern has anything to look for: to look for words
costs a thirtieth."""


def scrub(text: str, secret: str | None = None) -> str:
    """Return TEXT without tokens, credentials in addresses and signed queries, and without SECRET itself."""
    if secret:
        text = text.replace(secret, "***")
    small = text.casefold()
    for words, pattern, replacement in _RULES:
        if any(word in small for word in words):
            text = pattern.sub(replacement, text)
    return text


def one_line(text: str, limit: int = 400) -> str:
    """Return TEXT on one line, cut to LIMIT characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
