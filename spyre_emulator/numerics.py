"""DLFloat16 arithmetic on float32 buffers: round, encode, decode; in C where built, in torch otherwise.

The format has 1 sign, 6 exponent and 9 fraction bits, bias 31, no subnormals, zero as exponent 0 with fraction 0,
and one code 0x7FFF for NaN and infinity (DLFloat, ARITH 2019; onnx-mlir's NNPA header). The float32 *shadow* of a
device tensor holds every DLFloat16 number exactly and keeps signed infinities, which the device merges.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from pathlib import Path
from typing import NamedTuple

import torch

from spyre_emulator import settings

LARGEST = (1 + 510 / 512) * 2.0**32
"""Code 0x7FFE, ``DLFLOAT16_MAX`` of torch_spyre/_inductor/constants.py."""
SMALLEST = (1 + 1 / 512) * 2.0**-31
CONSTANT_LARGEST = (1 + 511 / 512) * 2.0**31
"""Code 0x7DFF, where host constants saturate (torch_spyre/csrc/module.cpp)."""
EPSILON = 2.0**-9

_INFINITE = 0x7F800000
_SMALLEST_BITS = ((127 - 31) << 23) | (1 << 14)
_LARGEST_BITS = ((127 + 32) << 23) | (510 << 14)
_REBIAS = (127 - 31) << 23
_HALF_SMALLEST = ((127 - 32) << 23) | (1 << 14)


class Rule(NamedTuple):
    """One rounding rule as bit arithmetic on the 14 dropped fraction bits."""

    bias: int
    lsb: int
    floor: int
    """Largest magnitude (float32 bits) that becomes zero rather than the smallest number."""


RULES = {
    "nearest-even": Rule(0x1FFF, 1, _HALF_SMALLEST),
    "nearest-up": Rule(0x2000, 0, _HALF_SMALLEST - 1),
    "truncate": Rule(0, 0, _SMALLEST_BITS - 1),
}


def _load() -> ctypes.CDLL | None:
    for path in sorted(Path(__file__).parent.glob("_dlfloat16*.so")):
        library = ctypes.CDLL(str(path))
        if not hasattr(library, "dlfloat16_sum"):
            continue
        pointer, size, word = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint32
        library.dlfloat16_round.argtypes = [pointer, size, word, word, word]
        library.dlfloat16_decode.argtypes = [pointer, pointer, size]
        library.dlfloat16_encode.argtypes = [pointer, pointer, size]
        library.dlfloat16_sum.argtypes = [pointer, pointer, size, size, size, pointer, word, word, word]
        for name in ("round", "decode", "encode", "sum"):
            getattr(library, f"dlfloat16_{name}").restype = None
        return library
    return None


_library = _load()


def has_native_kernel() -> bool:
    """Whether the C kernel was built and is in use."""
    return _library is not None and settings.current.native_kernel


def is_dense(x: torch.Tensor) -> bool:
    """Whether the elements of `x` fill one gapless block of memory, in any order of dimensions."""
    if x.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def round_(x: torch.Tensor, rule: Rule | None = None) -> torch.Tensor:
    """`x` itself (float32, CPU, any strides), its values rounded to DLFloat16."""
    rule = rule or RULES[settings.current.rounding]
    if x.numel() == 0 or x.layout is not torch.strided:  # other layouts are refused where they would enter the device
        return x
    if not is_dense(x):
        return x.copy_(round_(x.contiguous(), rule))
    if has_native_kernel():
        assert _library is not None
        _library.dlfloat16_round(x.data_ptr(), x.numel(), *rule)
        return x
    return _round_with_torch_(x, rule)


def _round_with_torch_(x: torch.Tensor, rule: Rule) -> torch.Tensor:
    flat = x.as_strided((x.numel(),), (1,), x.storage_offset())
    bits = flat.view(torch.int32)
    magnitude = bits & 0x7FFFFFFF
    rounded = (magnitude + rule.bias + ((magnitude >> 14) & rule.lsb)) & -0x4000
    small = torch.where(magnitude > rule.floor, _SMALLEST_BITS, 0)
    rounded = torch.where(rounded < _SMALLEST_BITS, small, rounded)
    rounded = torch.where(rounded > _LARGEST_BITS, _INFINITE, rounded)
    rounded = torch.where(magnitude >= _INFINITE, magnitude, rounded)
    bits.copy_((rounded | (bits & -0x80000000)).to(torch.int32))
    return x


def rounded(x: torch.Tensor, rule: Rule | None = None) -> torch.Tensor:
    """A float32 copy of `x` rounded to DLFloat16."""
    return round_(x.to(torch.float32, copy=True), rule)


@functools.lru_cache(maxsize=4096)
def round_scalar(value: float) -> float:
    """`value` as the host encodes a constant for the device: nearest, finite values saturating at 0x7DFF."""
    if value != value or value in (float("inf"), float("-inf")):
        return value
    limited = max(-CONSTANT_LARGEST, min(CONSTANT_LARGEST, value))
    # No tensor here: constants are met while tracing, where tensors are fake.
    (bits,) = struct.unpack("<I", struct.pack("<f", limited))
    rule, magnitude = RULES["nearest-even"], bits & 0x7FFFFFFF
    code = (magnitude + rule.bias + ((magnitude >> 14) & rule.lsb)) & ~0x3FFF
    if code < _SMALLEST_BITS:
        code = _SMALLEST_BITS if magnitude > rule.floor else 0
    (result,) = struct.unpack("<f", struct.pack("<I", code | (bits & 0x80000000)))
    return float(result)


def decode(codes: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Float32 values of contiguous 16-bit `codes` (int16 or uint16), exactly; 0x7FFF becomes NaN."""
    if out is None:
        out = torch.empty(codes.shape, dtype=torch.float32, device="cpu")
    if codes.numel() == 0:
        return out
    if has_native_kernel():
        assert _library is not None
        _library.dlfloat16_decode(codes.data_ptr(), out.data_ptr(), codes.numel())
        return out
    word = codes.view(torch.int16).to(torch.int32)
    magnitude = word & 0x7FFF
    bits = torch.where(magnitude == 0, 0, (magnitude << 14) + _REBIAS)
    bits = torch.where(magnitude == 0x7FFF, 0x7FC00000, bits)
    sign = torch.where(word < 0, -0x80000000, 0)
    out.view(torch.int32).copy_((bits | sign).to(torch.int32))
    return out


def encode(values: torch.Tensor) -> torch.Tensor:
    """16-bit codes (as int16) of float32 `values`, which are rounded first; infinities and NaN become 0x7FFF."""
    exact = rounded(values).contiguous()
    codes = torch.empty(exact.shape, dtype=torch.int16, device="cpu")
    if exact.numel() == 0:
        return codes
    if has_native_kernel():
        assert _library is not None
        _library.dlfloat16_encode(exact.data_ptr(), codes.data_ptr(), exact.numel())
        return codes
    bits = exact.view(torch.int32)
    magnitude = bits & 0x7FFFFFFF
    word = torch.where(magnitude == 0, 0, (magnitude - _REBIAS) >> 14)
    word = torch.where(magnitude >= _INFINITE, 0x7FFF, word)
    return codes.copy_(word | torch.where(bits < 0, -0x8000, 0))


def sum_rows(rows: torch.Tensor, lanes: int, rule: Rule) -> torch.Tensor:
    """Sums of the rows of a contiguous float32 matrix, each addition rounded by `rule`; needs the C kernel."""
    assert _library is not None
    out = torch.empty(rows.shape[0], dtype=torch.float32, device="cpu")
    scratch = torch.empty(lanes, dtype=torch.float32, device="cpu")
    _library.dlfloat16_sum(
        rows.data_ptr(), out.data_ptr(), rows.shape[0], rows.shape[1], lanes, scratch.data_ptr(), *rule
    )
    return out
