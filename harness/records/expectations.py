"""Nouns of what is known beforehand: cases that are not run, and cases that fail."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from harness.records.axes import Selector
from harness.records.base import OutcomeKind
from harness.records.sources import Reason

EXPECTABLE = (
    OutcomeKind.UNSUPPORTED_OP,
    OutcomeKind.COMPILE_ERROR,
    OutcomeKind.RUNTIME_ERROR,
    OutcomeKind.DEVICE_ERROR,
    OutcomeKind.HOST_OUT_OF_MEMORY,
    OutcomeKind.DEVICE_OUT_OF_MEMORY,
    OutcomeKind.TIMEOUT,
    OutcomeKind.CRASH,
    OutcomeKind.KILLED,
)
"""Outcomes that say something about the device. The others say that a check proves nothing, or that
nothing ran, and no expectation may hide that."""


class ExpectationMode(StrEnum):
    """What a run does with the expectations of its rows. The words are those of torch-spyre's test runner."""

    GATING = "gating"
    """They are held against the cases: a known failure is XFAIL, and what contradicts its entry makes the run red."""
    VALIDATE = "validate"
    """They are set aside and noted: each row shows PASS or FAIL as it is, and neither makes the run red."""


class Exclusion(Selector):
    """Cases that are not run, decided before running."""

    reason: Reason
    """Why; it is shown beside each skipped case."""


class Expectation(Selector):
    """A known failure. Strict: a pass, or a failure of another kind, contradicts it."""

    outcome: OutcomeKind | Literal["outside_rule"] = Field(json_schema_extra={"enum": ["outside_rule", *EXPECTABLE]})
    """What is expected: the outcome's kind, or ``outside_rule`` for completed with wrong numbers."""
    reason: Reason
    """What is known of the defect, for those who read the report."""
    issue: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")] | None = None
    """Link to the report of the defect."""
    expires: date | None = None
    """From this day on the entry is an error, so that known failures are looked at again."""

    @field_validator("outcome")
    @classmethod
    def _about_the_device(cls, outcome: OutcomeKind | str) -> OutcomeKind | str:
        if isinstance(outcome, OutcomeKind) and outcome not in EXPECTABLE:
            raise ValueError(
                f"outcome '{outcome}' cannot be expected: it says nothing about the device; "
                f"expect 'outside_rule' or one of {', '.join(EXPECTABLE)}"
            )
        return outcome
