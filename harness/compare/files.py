"""Comparison of tensors that were saved as safetensors, without a model."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from harness.compare.outputs import compare_outputs
from harness.errors import UsageError
from harness.records import Comparison


def compare_files(reference: Path, candidate: Path, control: Path | None = None) -> Comparison:
    """Return the comparison of all tensors in the files; names that end in ``logits`` are distributions.

    Raises UsageError for a file that is missing or no safetensors, and for a control that lacks an output.
    """
    wanted = _load(reference)
    comparison = compare_outputs(
        wanted,
        _load(candidate),
        None if control is None else _load(control),
        logits=[name for name, tensor in wanted.items() if _is_logits(name, tensor)],
    )
    for output in comparison.outputs:
        if output.control_mismatch:
            raise UsageError(
                f"--control {control}: {output.name}: {output.control_mismatch}; "
                "give the reference's outputs as a CPU computes them in the candidate's precision"
            )
    return comparison


def _load(path: Path) -> dict[str, torch.Tensor]:
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is a {'folder' if path.is_dir() else 'device'}; name a safetensors file")
    try:
        return load_file(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{path}: not a readable safetensors file ({error})") from error


def _is_logits(name: str, tensor: torch.Tensor) -> bool:
    """Tell by the last word of the name, or the word before a step: ``logits``, ``logits.decode``."""
    return tensor.is_floating_point() and tensor.dim() > 1 and "logits" in name.split(".")
