"""What an exception in a case's process stands for."""

from __future__ import annotations

from harness.errors import CheckpointError, UsageError
from harness.isolate.child import classify
from harness.records import OutcomeKind, Stage


def test_wrong_input_is_no_failure_of_the_device() -> None:
    outcome = classify(UsageError("target 'quantum': torch cannot use it here"), Stage.PLACE)
    assert (outcome.kind, outcome.message) == (
        OutcomeKind.HARNESS_FAULT,
        "UsageError: target 'quantum': torch cannot use it here",
    )
    assert classify(CheckpointError("torn", "invalid_checkpoint"), None).kind is OutcomeKind.INVALID_CHECKPOINT
    assert classify(RuntimeError("torn"), Stage.RUN).kind is OutcomeKind.RUNTIME_ERROR
