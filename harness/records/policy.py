"""Nouns of a release: what must hold, and who answers for the exceptions."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from harness.records.base import NoResult, Record, Status
from harness.records.sources import Reason

Pattern = Annotated[str, StringConstraints(min_length=1, max_length=400)]


class Requirement(Record):
    """Cases that must have one of some statuses."""

    cases: Pattern
    """Pattern over case ids, ``*`` for any text: ``granite*/*/spyre-*``."""
    status: Annotated[tuple[Status, ...], Field(min_length=1)] = (Status.PASS,)
    """Statuses that will do."""


class Waiver(Record):
    """An exception that somebody answers for."""

    cases: Pattern
    """Pattern over case ids, ``*`` for any text."""
    owner: Annotated[str, StringConstraints(min_length=2, strip_whitespace=True)]
    """Who answers for it: a person or a team that can be asked."""
    reason: Reason
    """Why the release may go out nevertheless."""
    issue: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")] | None = None
    """Link to the report of the defect."""
    expires: date
    """From this day on it waives nothing."""


class Policy(Record):
    """A release policy: one file, read by ``conformance gate``."""

    version: Literal[1]
    """Version of this file's form."""
    mode: Literal["gating", "validate"] = "gating"
    """``gating``: what does not hold refuses the release. ``validate``: it is reported, and refuses nothing."""
    require: Annotated[tuple[Requirement, ...], Field(min_length=1)]
    """What must hold. An entry that matches no case refuses the release: it would prove nothing."""
    waivers: tuple[Waiver, ...] = ()
    """Exceptions. One that has expired, or that nothing needs any more, refuses the release."""
    allow_notrun: tuple[NoResult, ...] = ()
    """Kinds of NOTRUN that do not count, where a requirement would meet them."""
