"""What an exception in a case's process stands for."""

from __future__ import annotations

import os

import pytest

from harness.errors import CheckpointError, UsageError
from harness.isolate.child import NO_DISK, classify
from harness.records import OutcomeKind, Stage


def test_wrong_input_is_no_failure_of_the_device() -> None:
    outcome = classify(UsageError("target 'quantum': torch cannot use it here"), Stage.PLACE)
    assert (outcome.kind, outcome.message) == (
        OutcomeKind.HARNESS_FAULT,
        "UsageError: target 'quantum': torch cannot use it here",
    )
    assert classify(CheckpointError("torn", "invalid_checkpoint"), None).kind is OutcomeKind.INVALID_CHECKPOINT
    assert classify(RuntimeError("torn"), Stage.RUN).kind is OutcomeKind.RUNTIME_ERROR


@pytest.mark.parametrize("code", sorted(NO_DISK))
def test_a_disk_that_takes_no_more_is_infrastructure(code: int) -> None:
    """Whoever tells it: Python, or safetensors in words of its own."""
    said = f"Error while serializing: I/O error: {os.strerror(code)} (os error {code})"
    for error in (OSError(code, os.strerror(code), "x.safetensors"), RuntimeError(said)):
        assert classify(error, Stage.RUN).kind is OutcomeKind.UNAVAILABLE
