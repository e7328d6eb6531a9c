"""Reads and checks the header of a safetensors file without touching its tensors.

Format: https://huggingface.co/docs/safetensors/index#format (8 bytes little-endian length, JSON, data).
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any, NamedTuple

MAX_HEADER = 100_000_000
"""Bytes; the limit of the safetensors library itself."""
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64,
    "F64": 64, "C64": 64,
}  # fmt: skip
TORCH_NAMES = {
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "U8": "uint8", "I8": "int8",
    "I32": "int32", "I64": "int64", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
LFS_POINTER = b"version https://git-lfs"


class StoredTensor(NamedTuple):
    """A tensor as the header declares it."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)


class BadHeaderError(ValueError):
    """What is wrong with the file, to be joined to its name."""


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors that PATH declares, all of which lie inside the file.

    Raises BadHeaderError for a truncated or empty file, a Git LFS pointer and a header that is
    absurd or inconsistent. At most the header is read into memory.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(len(LFS_POINTER))
        if start == LFS_POINTER:
            raise BadHeaderError("is a Git LFS pointer and not the weights; run 'git lfs pull' or fetch it again")
        if size < 8:
            raise BadHeaderError(f"has {size} bytes, too few for a safetensors file")
        (length,) = struct.unpack("<Q", start[:8])
        if length > MAX_HEADER or 8 + length > size:
            raise BadHeaderError(f"claims a header of {length} bytes in a file of {size}: truncated or no safetensors")
        file.seek(8)
        raw = file.read(length)
    tensors = _parse(raw)
    _check_layout(tensors, size - 8 - length)
    return tensors


def _parse(raw: bytes) -> dict[str, StoredTensor]:
    try:
        document = json.loads(raw)
        return {
            name: StoredTensor(row["dtype"], tuple(row["shape"]), *row["data_offsets"])
            for name, row in document.items()
            if name != "__metadata__"
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadHeaderError(f"has a header that is no safetensors JSON ({type(error).__name__})") from error


def _check_layout(tensors: dict[str, StoredTensor], data: int) -> None:
    """Raise BadHeaderError unless the tensors fill the DATA bytes without gap or overlap."""
    place = 0
    for name, tensor in sorted(tensors.items(), key=lambda row: (_integer(row[1].begin), _integer(row[1].end))):
        if tensor.dtype not in BITS or any(_integer(extent) < 0 for extent in tensor.shape):
            raise BadHeaderError(f"declares tensor {name[:120]!r} with dtype {tensor.dtype!r}, shape {tensor.shape}")
        if tensor.begin != place or (tensor.end - tensor.begin) * 8 != tensor.elements * BITS[tensor.dtype]:
            raise BadHeaderError(f"places tensor {name[:120]!r} at bytes {tensor.begin}-{tensor.end}: inconsistent")
        place = tensor.end
    if place != data:
        raise BadHeaderError(f"declares {place} bytes of tensors and holds {data}: truncated or padded")


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadHeaderError(f"has {value!r} where a whole number belongs")
    return value
