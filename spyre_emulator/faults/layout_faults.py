"""F01 to F13: layouts, views and offsets."""

from __future__ import annotations

from typing import Any

import torch

from spyre_emulator import conversions, private
from spyre_emulator.faults.fault import BOTH, COMPILED, AtCopy, AtOperator, AtPlanInput, AtView, Fault, View
from spyre_emulator.faults.memory_reads import (
    STICK,
    computed_with,
    dense_strides,
    is_part_of_storage,
    read_densely,
)
from spyre_emulator.kernels import OpCall
from spyre_emulator.layout import default_layout
from spyre_emulator.memory import shadow

aten = private.aten
Tensor = torch.Tensor
GROUP = "layout / view / offset"
RMS_NORM = "spyre.rms_norm.default"


def _dim(call: OpCall, position: int = 1) -> int:
    """The dimension argument at `position`, counted from the front."""
    given = call.args[position] if len(call.args) > position else call.kwargs.get("dim", 0)
    first = call.args[0][0] if isinstance(call.args[0], (list, tuple)) else call.args[0]
    return int(given % first.dim())


def _appends_one_row(call: OpCall) -> bool:
    pieces, dim = call.args[0], _dim(call)
    if pieces[0].dim() != 4 or dim != 2 or len(pieces) < 2:
        return False
    return pieces[0].shape[dim] > 1 and any(p.shape[dim] == 1 for p in pieces[1:])


def _row_not_advanced(call: OpCall) -> Tensor:
    result: Tensor = call.proceed()
    dim, position = _dim(call), 0
    for piece in call.args[0]:
        if piece.shape[dim] == 1 and position:
            result.narrow(dim, position, 1).copy_(result.narrow(dim, position - 1, 1))
        position += piece.shape[dim]
    return result


def _always(call: OpCall) -> bool:
    return True


def _one_further(call: OpCall) -> Any:
    values, output, dims, offsets = call.args
    room = [output.shape[d] - values.shape[d] + 1 for d in dims]
    return computed_with(call, values, output, dims, [(o + 1) % n for o, n in zip(offsets, room, strict=True)])


def _norm_of_strided(call: OpCall) -> bool:
    x = call.args[0]
    if x.dim() != 4 or x.is_contiguous():
        return False
    if str(call.op) == RMS_NORM:
        return True
    return list(call.args[1] or []) in ([-1], [3]) and (len(call.args) < 3 or bool(call.args[2]))


def _norm_reads_densely(call: OpCall) -> Any:
    return computed_with(call, read_densely(call.args[0]), *call.args[1:])


def _contiguous_view_of(x: Tensor, first: int, second: int) -> View:
    shape = list(x.shape)
    shape[first], shape[second] = shape[second], shape[first]
    return tuple(shape), dense_strides(tuple(shape)), int(x.storage_offset())


def _heads_not_transposed(x: Tensor, dim0: int, dim1: int) -> View | None:
    if x.dim() != 4 or not x.is_contiguous() or {dim0 % 4, dim1 % 4} != {1, 2} or x.shape[1] % STICK:
        return None
    return _contiguous_view_of(x, 1, 2)


def _stick_not_transposed(x: Tensor, dim0: int, dim1: int) -> View | None:
    rank = x.dim()
    if rank < 3 or not x.is_contiguous() or dim0 % rank == dim1 % rank or rank - 1 not in (dim0 % rank, dim1 % rank):
        return None
    return _contiguous_view_of(x, dim0 % rank, dim1 % rank)


def _rotates_slices(call: OpCall) -> bool:
    pieces = call.args[0]
    if len(pieces) != 2 or pieces[0].dim() != 4 or _dim(call) != 3 or pieces[0].shape != pieces[1].shape:
        return False
    return not pieces[1].is_contiguous() and is_part_of_storage(pieces[1])


def _slice_read_densely(call: OpCall) -> Tensor:
    first, second = call.args[0]
    return torch.cat([first, read_densely(second)], -1)


def _from_offset_zero(x: Tensor) -> Tensor:
    if not x.storage_offset():
        return x
    return private.as_strided(x, x.shape, x.stride(), 0)


def _into_view(direction: str, source: Tensor, destination: Tensor) -> bool:
    return direction != "d2h" and is_part_of_storage(destination)


def _only_first_element(source: Tensor, destination: Tensor) -> None:
    host = shadow(destination)
    if host.numel() == 0:
        return
    first = source.reshape(-1)[:1]
    values = conversions.to_device(first, destination.dtype) if first.is_cpu else shadow(first)
    host.zero_()
    host[(0,) * host.dim()] = values.item()


def _whole_sticks_skipped(
    x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> View | None:
    rank = x.dim()
    if rank < 2 or dim % rank != rank - 1 or step != 1:
        return None
    first, last, _ = slice(start, end).indices(int(x.shape[-1]))
    if not first or first % STICK or last <= first:
        return None
    return (*x.shape[:-1], last - first), tuple(x.stride()), int(x.storage_offset())


def _indexed_dim_not_outermost(call: OpCall) -> bool:
    """Whether the indexed dimension is not the first of more than one element in the default device layout."""
    x, dim = call.args[0], _dim(call)
    sizes = tuple(x.shape)
    layout = default_layout(sizes, dense_strides(sizes), call.dtypes[0] or x.dtype)
    outermost = next((s for n, s in zip(layout.device_size, layout.stride_map, strict=True) if n > 1), None)
    return sizes[dim] > 1 and outermost != dense_strides(sizes)[dim]


def _next_rows(call: OpCall) -> Any:
    x, dim, index, source = call.args
    return computed_with(call, x, dim, (index + 1) % x.shape[dim], source)


def _has_scalar_index(call: OpCall) -> bool:
    index = call.args[2] if "index_select" in str(call.op) else call.args[1]
    return bool(index.dim() == 0)


def _row_zero(call: OpCall) -> Any:
    position = 2 if "index_select" in str(call.op) else 1
    args = list(call.args)
    args[position] = torch.zeros_like(args[position])
    return computed_with(call, *args)


def _gathers_partial_stick(call: OpCall) -> bool:
    index = call.args[2]
    return bool(index.dim() >= 2 and index.shape[-1] % STICK and index.numel() > index.shape[-1])


def _index_rows_padded(call: OpCall) -> Tensor:
    x, dim, index = call.args[:3]
    width = index.shape[-1]
    pitch = -(-width // STICK) * STICK
    rows = torch.arange(index.numel() // width, device="cpu")[:, None] * pitch
    positions = (rows + torch.arange(width, device="cpu")) % index.numel()
    return torch.gather(x, dim, index.reshape(-1)[positions].view(index.shape))


def _view_to_host(direction: str, source: Tensor, destination: Tensor) -> bool:
    return direction == "d2h" and is_part_of_storage(source)


def _from_start_of_allocation(source: Tensor, destination: Tensor) -> None:
    dense = private.as_strided(source, source.shape, dense_strides(tuple(source.shape)), 0)
    destination.copy_(conversions.to_host(shadow(dense), source.dtype))


FAULTS = (
    Fault(
        "F01", "KV append by cat", "cat of 4-D tensors along dim 2 with a piece of size 1 behind a longer one",
        "the appended row holds the row before it", "silent", "torch-spyre#1760, torch-spyre#1094",
        (AtOperator(("aten.cat.default",), _appends_one_row, _row_not_advanced),), GROUP,
        assumed="which values the wrong row holds",
    ),
    Fault(
        "F02", "spyre.overwrite writes the wrong row", "torch.ops.spyre.overwrite or overwrite_f in eager mode",
        "the block lands one position further (4.41)", "silent", "torch-spyre#1765, torch-spyre#2488",
        (AtOperator(("spyre.overwrite_f.default",), _always, _one_further, ("eager",)),), GROUP,
        assumed="which wrong row is written; that None is returned is today's signature",
    ),
    Fault(
        "F03", "RMSNorm of a strided input", "RMSNorm, or its mean over the last dim, of a non-contiguous 4-D tensor",
        "memory is read as if contiguous", "silent", "torch-spyre#1781",
        (AtOperator((RMS_NORM, "aten.mean.dim"), _norm_of_strided, _norm_reads_densely),), GROUP,
        assumed="that rows are read in the order of memory",
    ),
    Fault(
        "F04", "heads not transposed in a compiled graph",
        "compiled transpose(1, 2) of a contiguous [B, S, H, D] with S filling whole sticks (S = 64)",
        "memory is read as [B, H, S, D]; nothing changes at S = 1", "silent", "torch-spyre#1783",
        (AtView((aten.transpose.int,), _heads_not_transposed, COMPILED),), GROUP,
        assumed="that S has to be a multiple of 64",
    ),
    Fault(
        "F05", "stick dimension not transposed",
        "transpose of the last with another dim, contiguous tensor of rank 3 or more", "memory is read untransposed",
        "silent", "torch-spyre#1756", (AtView((aten.transpose.int,), _stick_not_transposed, BOTH),), GROUP,
        assumed="that matrices (rank 2), which matmul takes transposed, are exempt",
    ),
    Fault(
        "F06", "rotate_half by slices", "cat along the last dim of two equal 4-D pieces, the second a strided slice",
        "the slice is read as if dense (5.22)", "silent", "torch-spyre#3133",
        (AtOperator(("aten.cat.default",), _rotates_slices, _slice_read_densely),), GROUP,
        assumed="which of the two halves is misread",
    ),
    Fault(
        "F07", "graph input read from offset 0", "a view with an offset as input of a compiled graph",
        "elements from offset 0 instead", "silent", "torch-spyre#2906, torch-spyre#3770",
        (AtPlanInput(_from_offset_zero),), GROUP,
    ),
    Fault(
        "F08", "copy_ into a view", "eager copy_ to a view of a larger allocation",
        "element 0 is written, the rest becomes zero", "silent", "torch-spyre#2791, PR #2816",
        (AtCopy(_into_view, _only_first_element),), GROUP,
    ),
    Fault(
        "F09", "offset along the stick dimension",
        "slice of the last dim that starts at a whole stick, narrow(1, 64, 64)",
        "columns from 0 instead of the requested ones", "silent", "torch-spyre#3264",
        (AtView((aten.slice.Tensor,), _whole_sticks_skipped, BOTH),), GROUP,
    ),
    Fault(
        "F10", "index_copy writes wrong rows",
        "index_copy along a dim that is not the outermost one of more than one element on the device",
        "each row lands one further", "silent", "torch-spyre#3705",
        (AtOperator(("aten.index_copy.default",), _indexed_dim_not_outermost, _next_rows),), GROUP,
        assumed="which wrong rows are written",
    ),
    Fault(
        "F11", "0-dim index", "index_select or embedding with a 0-dim device tensor as index", "row 0 is read",
        "silent", "spyre-inference probe",
        (AtOperator(("aten.index_select.default", "aten.embedding.default"), _has_scalar_index, _row_zero),), GROUP,
        assumed="which row is read",
    ),
    Fault(
        "F12", "gather over a partial stick", "gather whose index has a last dim that is no multiple of 64",
        "rows of the index are read at the pitch of whole sticks", "silent", "torch-spyre#4802",
        (AtOperator(("aten.gather.default",), _gathers_partial_stick, _index_rows_padded),), GROUP,
        assumed="the pitch",
    ),
    Fault(
        "F13", "host copy of a view", "copy to the host of a view of a larger allocation",
        "elements from the start of the allocation", "silent", "torch-spyre#4556",
        (AtCopy(_view_to_host, _from_start_of_allocation),), GROUP,
    ),
)  # fmt: skip
