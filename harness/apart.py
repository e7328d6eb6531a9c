"""A case's forward taken apart in its process: joins checkpoints, comparison and localisation for `subject`."""

from __future__ import annotations

import psutil
import torch

from harness import checkpoints, compare, localize
from harness.localize import Forward, Taken
from harness.records import (
    Checkpoint,
    DeviceUse,
    ModuleEvidence,
    OpError,
    OpState,
    OpUse,
    OutputComparison,
    TensorSpec,
)

LEAST_SECONDS = 20.0
"""A forward may be taken apart for this long, however short the case itself was."""

HEADROOM = 4.5
"""Bytes per parameter that have to be free: the float32 reference, and its largest module cast."""


def comparator(candidate_format: str, control_format: str) -> localize.Compare:
    """Compares one tensor of a module as the outputs of a case are compared."""

    def one(
        name: str, reference: torch.Tensor, candidate: torch.Tensor, control: torch.Tensor | None
    ) -> OutputComparison:
        return compare.compare_outputs(
            {name: reference},
            {name: candidate},
            None if control is None else {name: control},
            candidate_format=candidate_format,
            control_format=control_format,
        ).outputs[0]

    return one


def take_apart(
    checkpoint: Checkpoint,
    candidate: torch.nn.Module,
    forward: Forward,
    *,
    formats: tuple[str, str],
    auto_class: str,
    seconds: float,
    memory: int | None,
) -> Taken:
    """Return the own error of each module of a candidate that has been placed; a note where that cannot be.

    ``formats`` are the candidate's and the control's number formats. The evidence adds to a case that has
    its outputs: a model that cannot be taken apart keeps its case.
    """
    needed = HEADROOM * sum(parameter.numel() for parameter in candidate.parameters())
    free = psutil.virtual_memory().available
    if memory is not None:
        free = min(free, memory - psutil.Process().memory_info().rss)
    if needed > free:
        return _nothing(f"the float32 reference beside the candidate needs {needed / 2**30:.1f} GiB of free memory")
    reference = checkpoints.load_model(checkpoint, auto_class, "float32").model
    compared = comparator(*formats)
    noise = compare.number_format(formats[1]).noise
    try:
        return localize.modules(reference, candidate, forward, compared, floor=noise, seconds=seconds)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, LookupError, AttributeError) as error:
        return _nothing(f"the model cannot be taken apart: {type(error).__name__}: {str(error).splitlines()[0]}")


def check_ops(
    use: DeviceUse, candidate: torch.nn.Module, forward: Forward, *, control_format: str, seconds: float
) -> DeviceUse:
    """Return the device use with each op variant also run alone: one that is wrong alone is ``spyre_failed``."""
    device = next(candidate.parameters()).device
    if device.type == "cpu":
        return use
    floor = compare.number_format(control_format).noise
    checks = localize.check_variants(candidate, forward, device, floor=floor, limit=localize.LIMIT, seconds=seconds)
    found = {_variant(op.op, op.operands): (op, wrong) for op, wrong in checks}
    ops = []
    for one in use.ops:
        op, wrong = found.pop(_variant(one.op, one.operands), (None, False))
        ops.append(one if op is None else _checked(one, op, failed=wrong))
    for op, wrong in found.values():
        if wrong:  # the stack records it under another name: what fails must not be lost
            ops.append(
                _checked(OpUse(op=op.op, state=OpState.SPYRE_FAILED, count=0, operands=op.operands), op, failed=True)
            )
    return use.model_copy(update={"ops": tuple(ops)})


def _variant(op: str, operands: tuple[TensorSpec, ...]) -> tuple[str, tuple[TensorSpec, ...]]:
    """A key that in-place and functional forms of an op share."""
    return op.replace("_.", ".", 1), operands


def _checked(use: OpUse, op: OpError, *, failed: bool) -> OpUse:
    known = {"relative_l2": op.relative_l2, "control": op.control, "error": op.error, "checked": True}
    if failed and use.state is not OpState.NOT_IMPLEMENTED:
        known["state"] = OpState.SPYRE_FAILED
    return use.model_copy(update=known)


def _nothing(reason: str) -> Taken:
    return Taken(ModuleEvidence(skipped=reason), ())
