"""Checks that a folder holds one whole checkpoint, before torch or transformers see it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from harness.checkpoints.safetensors_header import (
    LFS_POINTER,
    TORCH_NAMES,
    BadHeaderError,
    StoredTensor,
    read_header,
)
from harness.checkpoints.selection import refuse_unsafe_name, weight_files
from harness.errors import CheckpointError
from harness.records import OutcomeKind

MAX_JSON = 100_000_000
"""Bytes; no index or config is near it."""


class IncompleteError(CheckpointError):
    """A file that the checkpoint itself names is not there: half a download, or half a checkpoint."""

    def __init__(self, message: str) -> None:
        super().__init__(message, OutcomeKind.INVALID_CHECKPOINT)


class Structure(NamedTuple):
    """What the files say of themselves."""

    format: str
    weights: tuple[str, ...]
    weight_bytes: int
    stored_dtype: str | None
    parameters: int | None
    architecture: str | None
    model_type: str | None


def inspect(
    folder: Path, names: Iterable[str], origin: str, *, allow_pickle: bool, allow_remote_code: bool = False
) -> Structure:
    """Return the structure of the checkpoint in FOLDER, which is complete and consistent.

    Raises CheckpointError: no config, no weights, a shard of the index missing, a Git LFS pointer,
    a truncated file or an absurd header, weights as pickle that the row does not allow.
    """
    names = tuple(names)
    config = _json(folder, "config.json", origin) if "config.json" in names else None
    if not isinstance(config, dict):
        raise IncompleteError(
            f"{origin}: config.json is missing or no JSON object; the path must lead to a whole checkpoint"
        )
    if allow_remote_code:
        _refuse_code_elsewhere(config, origin)
    weights = _weights(folder, names, origin)
    _refuse_pointers_and_empty(folder, names, origin)
    pickled = not weights[0].endswith(".safetensors")
    if pickled and not allow_pickle:
        raise invalid(
            origin, f"has only {weights[0]}, a pickle; give a reason under 'allow_pickle' in its row to load it"
        )
    tensors = {} if pickled else _read_headers(folder, weights, origin)
    architectures = config.get("architectures")
    return Structure(
        format="pickle" if pickled else "safetensors",
        weights=weights,
        weight_bytes=sum((folder / name).stat().st_size for name in weights),
        stored_dtype=_most_common_dtype(tensors),
        parameters=None if pickled else sum(tensor.elements for tensor in tensors.values()),
        architecture=architectures[0] if isinstance(architectures, list) and architectures else None,
        model_type=config.get("model_type"),
    )


def invalid(origin: str, what: str) -> CheckpointError:
    """Return the error for a checkpoint that is there and cannot be right."""
    return CheckpointError(f"{origin}: {what}", OutcomeKind.INVALID_CHECKPOINT)


def _weights(folder: Path, names: tuple[str, ...], origin: str) -> tuple[str, ...]:
    """Return the weight files, every shard of an index included and present."""
    weights = weight_files(names)
    if not weights:
        raise IncompleteError(f"{origin}: no weights (model.safetensors, or pytorch_model.bin where the row allows it)")
    stem = "model.safetensors" if weights[0].endswith(".safetensors") else "pytorch_model.bin"
    index = f"{stem}.index.json"
    if stem in weights or index not in names:
        return weights
    weight_map = _json(folder, index, origin).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise invalid(origin, f"{index} has no weight_map of names")
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        refuse_unsafe_name(shard, f"{origin}: {index}")
    missing = [shard for shard in shards if shard not in weights]
    if missing:
        raise IncompleteError(f"{origin}: incomplete: {index} names {missing[0]!r}, not there ({len(missing)} missing)")
    return tuple(shards)


def _refuse_code_elsewhere(config: dict[str, Any], origin: str) -> None:
    """Raise CheckpointError when the model's code is another repository's, which no pin reaches.

    ``auto_map`` writes that as ``org/name--module.Class`` (huggingface/transformers#26431 and others).
    """
    auto_map = config.get("auto_map")
    for value in auto_map.values() if isinstance(auto_map, dict) else ():
        for reference in value if isinstance(value, list) else [value]:
            if isinstance(reference, str) and "--" in reference:
                raise invalid(
                    origin, f"its code is in another repository ({reference!r}), which the revision does not pin"
                )


def _read_headers(folder: Path, weights: tuple[str, ...], origin: str) -> dict[str, StoredTensor]:
    tensors: dict[str, StoredTensor] = {}
    for name in weights:
        try:
            tensors |= read_header(folder / name)
        except BadHeaderError as error:
            raise invalid(origin, f"corrupt: {name} {error}") from error
    index = folder / "model.safetensors.index.json"
    if "model.safetensors" not in weights and index.exists():
        absent = sorted(set(_json(folder, index.name, origin)["weight_map"]) - set(tensors))
        if absent:
            raise invalid(origin, f"incomplete: the index names tensor {absent[0]!r}, which no shard holds")
    return tensors


def _refuse_pointers_and_empty(folder: Path, names: tuple[str, ...], origin: str) -> None:
    for name in names:
        with (folder / name).open("rb") as file:
            start = file.read(len(LFS_POINTER))
        if start == LFS_POINTER:
            raise invalid(origin, f"{name} is a Git LFS pointer and not the file; run 'git lfs pull' or fetch it again")
        if not start and name in weight_files(names):
            raise invalid(origin, f"corrupt: {name} is empty; fetch it again")


def _json(folder: Path, name: str, origin: str) -> Any:
    path = folder / name
    if path.stat().st_size > MAX_JSON:
        raise invalid(origin, f"{name} is {path.stat().st_size} bytes, too large for a config or index")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise invalid(origin, f"corrupt: {name} is no JSON ({error})") from error


def _most_common_dtype(tensors: dict[str, StoredTensor]) -> str | None:
    count: Counter[str] = Counter()
    for tensor in tensors.values():
        count[tensor.dtype] += tensor.elements
    return TORCH_NAMES.get(count.most_common(1)[0][0], count.most_common(1)[0][0].lower()) if count else None
