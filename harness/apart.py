"""A case's forward taken apart in its process: joins checkpoints, comparison and localisation for `subject`."""

from __future__ import annotations

import psutil
import torch

from harness import checkpoints, compare, localize
from harness.localize import Forward, Taken
from harness.records import Checkpoint, ModuleEvidence, OutputComparison

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


def _nothing(reason: str) -> Taken:
    return Taken(ModuleEvidence(skipped=reason), ())
