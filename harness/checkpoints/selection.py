"""Which files of a repository or wheel belong to a checkpoint, by one rule for every source."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from harness.errors import CheckpointError
from harness.records import OutcomeKind

TEXT = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
"""Config, tokenizer, processor and index files; SentencePiece models end in ``.model``."""
SAFETENSORS = ("*.safetensors",)
PICKLE = ("pytorch_model*.bin",)
NEVER = ("consolidated*", "adapter_model*", "training_args*", "optimizer*", "original/*", "onnx/*", "openvino/*")
"""Other packagings of the same weights (Mistral's ``consolidated``, Meta's ``original``), and state of training."""


def refuse_unsafe_name(name: str, place: str) -> None:
    """Raise CheckpointError when NAME could leave its folder or hide what it is."""
    parts = PurePosixPath(name).parts
    unsafe = (
        not parts
        or name.startswith("/")
        or ".." in parts
        or "\\" in name
        or ":" in parts[0]
        or not name.isprintable()
        or any(len(part.encode()) > 255 for part in parts)
    )
    if unsafe:
        raise CheckpointError(
            f"{place}: the file name {name[:200]!r} leaves the checkpoint's folder or is not printable; "
            "refused. Do not use this source",
            OutcomeKind.INVALID_CHECKPOINT,
        )


def select(names: Iterable[str], *, allow_pickle: bool, allow_remote_code: bool = False) -> tuple[str, ...]:
    """Return the names to fetch, sorted: texts, then one weight format.

    Safetensors win where a repository has both formats, so the format never depends on the loader.
    Weights count at the top level only.
    """
    everything = [name for name in names if not _matches(name, NEVER)]
    top = [name for name in everything if "/" not in name]
    chosen = {name for name in everything if _matches(name, TEXT)}
    weights = {name for name in top if _matches(name, SAFETENSORS)}
    if not weights and allow_pickle:
        weights = {name for name in top if _matches(name, PICKLE)}
    if allow_remote_code:
        chosen |= {name for name in everything if name.endswith(".py")}
    return tuple(sorted(chosen | weights))


def weight_files(names: Iterable[str]) -> tuple[str, ...]:
    """Return the weight files among NAMES: safetensors if there are any, pickles otherwise."""
    top = sorted(name for name in names if "/" not in name and not _matches(name, NEVER))
    found = tuple(name for name in top if _matches(name, SAFETENSORS))
    return found or tuple(name for name in top if _matches(name, PICKLE))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
