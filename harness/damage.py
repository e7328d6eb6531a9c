"""What commands say of run directories that are damaged: the same words and exit status in each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.terminal import say

SHOWN = 3
"""Damaged places that a warning names; the report has them all."""

Warn = Callable[[Path, Sequence[str]], object]
"""Is told of a run directory what in it is damaged."""


class Warnings:
    """Says on stderr what readers of run directories could not use, and remembers that there was something."""

    def __init__(self) -> None:
        self.exit_status = 0

    def __call__(self, directory: Path, damage: Sequence[str]) -> None:
        """Say what is damaged, if anything is."""
        if damage:
            self.exit_status = 1
            say(f"conformance: warning: {damaged(directory, damage)}", err=True)


def damaged(directory: Path, damage: Sequence[str]) -> str:
    """Return a sentence on what a reader of the run directory could not use."""
    shown = "; ".join(damage[:SHOWN])
    more = f"; and {len(damage) - SHOWN} more" if len(damage) > SHOWN else ""
    count = f"{len(damage)} {'place is' if len(damage) == 1 else 'places are'} damaged"
    return f"{directory}: {count} and left out, the rest counts: {shown}{more}"
