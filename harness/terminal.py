"""What is printed: texts of models, devices and stored runs must not steer the terminal that shows them."""

from __future__ import annotations

import re

import typer

_STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
"""Control and direction characters but newline and tab, and half characters, which cannot be printed at all."""


def harmless(text: str) -> str:
    """Return the text with what steers a terminal as ``\\u001b``: readable, and JSON stays the JSON that it was."""
    return _STEERING.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text. Commands print through here alone."""
    typer.echo(harmless(text), err=err, nl=nl)
