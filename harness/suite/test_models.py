"""Whole models: the device against the CPU reference. One item per case of the matrix."""

from harness.plugin import CaseOutcome


def test_model(case_outcome: CaseOutcome) -> None:
    """Wait for the case, then fail, skip or pass as its verdict says."""
    case_outcome.enforce()
