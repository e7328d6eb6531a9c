"""What the published stack refuses although it has the operator: dtypes, arguments, spans. In its own words.

Each text is the ``<what>`` of ``Unsupported: Spyre backend does not support: <what>`` where the stack prints one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from spyre_emulator.cores import SPAN_LIMIT, cores_for
from spyre_emulator.dtypes import device_format

Geometry = tuple[tuple[int, ...], torch.dtype]
"""Shape and logical dtype of one tensor operand."""

MAX_TOPK = 128
INDEXING = frozenset(
    ["embedding", "index_select", "index_copy", "index_add", "index_put", "scatter", "where", "topk", "index"]
)
"""Operators whose integer operands are positions, which the device takes as int32."""
MATMUL = frozenset(["mm", "bmm", "addmm", "baddbmm", "linear", "matmul"])
COMPARISON = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])
FP32 = frozenset(
    [
        "add", "sub", "rsub", "mul", "where", "div", "relu", "reciprocal", "mean", "sum", "amax", "amin", "max", "min",
        "abs", "neg", "exp", "sigmoid", "silu", "sqrt", "rsqrt", "topk", "floor", "_to_copy", "maximum", "minimum",
        "clamp", "gt", "ge", "lt", "le", "eq", "ne", "prod", "native_layer_norm", "layer_norm", "_softmax", "softmax",
        "cat", "stack", "clone", "copy", "embedding", "index_select", "index_copy", "full", "zeros", "ones", "fill",
        "zero", "full_like", "zeros_like", "ones_like", "empty", "_unsafe_view", "constant_pad_nd", "repeat", "ceil",
        "sign", "square",
    ]
)  # fmt: skip
"""``SPYRE_FP32_OPS`` of torch-spyre's constants.py in aten names, and the operators that only move values."""
_NEVER = frozenset({torch.float64, torch.complex64, torch.complex128})


def name_of(op: Any) -> str:
    """Name of an overload without namespace, overload and the underscore of an in-place form."""
    name: str = op._schema.name.partition("::")[2]
    return name.rstrip("_") or name


def refused_operands(op: Any, operands: tuple[Geometry, ...]) -> str | None:
    """What about the dtypes of `operands` the device does not support for `op`; None when nothing."""
    name = name_of(op)
    dtypes = {dtype for _, dtype in operands}
    for dtype in dtypes & _NEVER:
        return f"operations on {dtype} dtype"
    if dtypes & {torch.int64, torch.int32} and name not in INDEXING:
        if name in COMPARISON:
            return f"torch.bool result of operand with device format DataFormats.{device_format(torch.int32).name}"
        if torch.int64 in dtypes:
            return "operations on torch.int64 dtype"
    if torch.float32 in dtypes:
        if name in MATMUL:
            return "batchmatmul on DataFormats.IEEE_FP32"
        if name not in FP32:
            return f"{name} on torch.float32 dtype"
    return None


def failed_span(op: Any, operands: tuple[Geometry, ...]) -> str | None:
    """The abort of the back end for an operand whose per-core share is beyond the addressable span."""
    if name_of(op) not in MATMUL or len(operands) < 2:
        return None
    shape, dtype = operands[-1]
    if len(shape) < 2:
        return None
    stick = device_format(dtype).elements_per_stick
    tiles = math.ceil(shape[-1] / stick)
    rows = shape[-2]
    share = cores_for(tiles)
    span = tiles // share * stick * rows * device_format(dtype).itemsize
    if span <= SPAN_LIMIT:
        return None
    return (
        f"dxp_standalone --bundle died with SIGABRT: operand of shape {tuple(shape)} takes {span} bytes per core on "
        f"{share} cores, the addressable span is {SPAN_LIMIT}; pad the last dimension so that its "
        f"{tiles} sticks divide over more cores"
    )


def refused_arguments(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """What about the arguments the device does not support for `op`; None when nothing."""
    rule = _RULES.get(name_of(op))
    return None if rule is None else rule(args, kwargs)


def has_argument_rule(op: Any) -> bool:
    """Whether `refused_arguments` has to be asked."""
    return name_of(op) in _RULES


def _topk(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    k = args[1] if len(args) > 1 else kwargs.get("k", 1)
    if k > MAX_TOPK:
        return f"topk with k={k} is not supported (max k={MAX_TOPK})"
    largest = args[3] if len(args) > 3 else kwargs.get("largest", True)
    return None if largest else "topk with largest=False"


def _rms_norm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    return "RMSNorm reducing more than 1 dimension" if len(args) > 1 and len(args[1]) > 1 else None


def _flip(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    rank = args[0].dim()
    return "flip of the stick dimension" if any(d % max(rank, 1) == rank - 1 for d in args[1]) else None


def _prod(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    if len(args) < 2 or not isinstance(args[1], int):
        return "prod without a dimension"
    return "prod along the stick dimension" if args[1] % args[0].dim() == args[0].dim() - 1 else None


def _slice_scatter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    step = args[5] if len(args) > 5 else kwargs.get("step", 1)
    return None if step == 1 else f"slice_scatter with step={step}"


def _convolution(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    return "transposed convolution" if len(args) > 6 and args[6] else None


_RULES: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], str | None]] = {
    "topk": _topk,
    "rms_norm": _rms_norm,
    "flip": _flip,
    "prod": _prod,
    "slice_scatter": _slice_scatter,
    "convolution": _convolution,
    "convolution_overrideable": _convolution,
}
