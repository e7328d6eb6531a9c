import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from harness.checkpoints.safetensors_header import BadHeaderError, StoredTensor, read_header


def write(path: Path, header: Any, data: bytes = b"") -> Path:
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return path


def tensor(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_a_header_as_the_library_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"b": np.zeros((2, 3), np.float16), "a": np.array(7, np.int64)}, path, metadata={"format": "pt"})
    assert read_header(path) == {"a": StoredTensor("I64", (), 0, 8), "b": StoredTensor("F16", (2, 3), 8, 20)}


BAD = {
    "empty": (b"", "has 0 bytes"),
    "seven bytes": (b"1234567", "has 7 bytes"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
    "2^63": (struct.pack("<Q", 1 << 63), "claims a header of 9223372036854775808 bytes in a file of 8"),
    "no JSON": (struct.pack("<Q", 2) + b"{]", "no safetensors JSON"),
    "deep JSON": (struct.pack("<Q", 100_000) + b"[" * 100_000, "no safetensors JSON"),
    "list": (struct.pack("<Q", 2) + b"[]", "no safetensors JSON"),
}


@pytest.mark.parametrize(("data", "words"), BAD.values(), ids=BAD.keys())
def test_bytes_that_are_no_safetensors(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(BadHeaderError, match=words.replace("^", r"\^")):
        read_header(tmp_path / "a")


INCONSISTENT = {
    "truncated data": ({"a": tensor()}, b"123", "declares 4 bytes of tensors and holds 3"),
    "padded data": ({"a": tensor()}, b"12345", "declares 4 bytes of tensors and holds 5"),
    "gap": ({"a": tensor(offsets=(4, 8))}, b"12345678", "places tensor 'a' at bytes 4-8"),
    "overlap": ({"a": tensor(), "b": tensor()}, b"1234", "places tensor 'b' at bytes 0-4"),
    "wrong size": ({"a": tensor(shape=(2,))}, b"1234", "places tensor 'a' at bytes 0-4"),
    "unknown dtype": ({"a": tensor(dtype="F33")}, b"1234", "dtype 'F33'"),
    "negative extent": ({"a": tensor(shape=(-1, -1))}, b"1234", "shape"),
    "text offset": ({"a": tensor(offsets=("0", 4))}, b"1234", "'0' where a whole number belongs"),
    "three offsets": ({"a": tensor(offsets=(0, 4, 8))}, b"1234", "no safetensors JSON"),
}


@pytest.mark.parametrize(("header", "data", "words"), INCONSISTENT.values(), ids=INCONSISTENT.keys())
def test_headers_that_do_not_fit_the_file(tmp_path: Path, header: Any, data: bytes, words: str) -> None:
    with pytest.raises(BadHeaderError, match=words):
        read_header(write(tmp_path / "a", header, data))
