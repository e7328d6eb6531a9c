"""Fills the kernel table: which operators are device programs, which move or select values and so need no rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from spyre_emulator import decompositions as programs
from spyre_emulator import kernels, padding, private
from spyre_emulator.conversions import largest
from spyre_emulator.kernels import Kernel
from spyre_emulator.numerics import round_

aten = private.aten

PROGRAMS: dict[Any, Callable[..., Any]] = {
    aten._softmax.default: programs.softmax,
    aten._safe_softmax.default: programs.safe_softmax,
    aten._log_softmax.default: programs.log_softmax,
    aten.native_layer_norm.default: programs.layer_norm,
    aten.sum.dim_IntList: programs.reduced_sum,
    aten.sum.default: programs.full_sum,
    aten.mean.dim: programs.average,
    aten.mean.default: programs.full_average,
    aten.mm.default: programs.mm,
    aten.addmm.default: programs.addmm,
    aten.embedding.default: programs.embedding,
    aten.baddbmm.default: programs.baddbmm,
    aten.softplus.default: programs.softplus,
}

EXACT: tuple[Any, ...] = (
    aten.neg.default,
    aten.abs.default,
    aten.relu.default,
    aten.sign.default,
    aten.floor.default,
    aten.ceil.default,
    aten.trunc.default,
    aten.maximum.default,
    aten.minimum.default,
    aten.amax.default,
    aten.amin.default,
    aten.max.default,
    aten.min.default,
    aten.max.dim,
    aten.min.dim,
    aten.where.self,
    aten.clamp.default,
    aten.clamp.Tensor,
    aten.clamp_min.default,
    aten.clamp_max.default,
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.masked_scatter.default,
    aten.cat.default,
    aten.stack.default,
    aten.repeat.default,
    aten.flip.default,
    aten.roll.default,
    aten.tril.default,
    aten.triu.default,
    aten.gather.default,
    aten.index.Tensor,
    aten.index_select.default,
    aten.constant_pad_nd.default,
    aten.slice_scatter.default,
    aten.select_scatter.default,
    aten.sort.default,
    aten.topk.default,
    aten.full.default,
    aten.full_like.default,
    aten.zeros.default,
    aten.zeros_like.default,
    aten.ones.default,
    aten.ones_like.default,
    aten.zero.default,
    aten.fill.Scalar,
    aten.fill.Tensor,
)
"""Results are operands, or constants that were encoded already."""

MOVERS: dict[Any, Any] = {
    aten.index_copy.default: aten.index_copy_.default,
    aten.scatter.src: aten.scatter_.src,
}
"""Writers of values into positions, and their in-place forms, which spare a copy of the whole tensor."""

GEOMETRY: tuple[Any, ...] = (
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
    aten.linspace.default,
    aten.logspace.default,
)
"""Their numbers decide how many elements there are, and are used on the host."""


READERS: dict[Any, padding.Reader] = {
    **dict.fromkeys((aten.sum.dim_IntList, aten.sum.default), padding.over_dimensions("sum")),
    **dict.fromkeys((aten.mean.dim, aten.mean.default), padding.over_dimensions("mean")),
    **dict.fromkeys((aten.amax.default, aten.max.default, aten.max.dim), padding.over_dimensions("amax")),
    **dict.fromkeys((aten.amin.default, aten.min.default, aten.min.dim), padding.over_dimensions("amin")),
    **dict.fromkeys(
        (aten._softmax.default, aten._safe_softmax.default, aten._log_softmax.default),
        padding.over_dimensions("softmax"),
    ),
    aten.native_layer_norm.default: padding.last_dimension("norm"),
    aten.mm.default: padding.product(0),
    aten.bmm.default: padding.product(0),
    aten.addmm.default: padding.product(1),
    aten.baddbmm.default: padding.product(1),
}
"""How operators that combine elements along a stick read it."""


PACKED = {aten.mm.default: (1,), aten.addmm.default: (2,), aten.embedding.default: (0,)}
"""Weights that may stay 16-bit codes."""


def fill() -> None:
    """Register every kernel that differs from PyTorch's own with rounding."""
    for op, program in PROGRAMS.items():
        kernels.register(
            Kernel(op, program, program=True, scalars=False, packed=PACKED.get(op, ()), reads=READERS.get(op))
        )
    for op in EXACT:
        kernels.register(Kernel(op, op, rounds=False, reads=READERS.get(op)))
    for op, in_place in MOVERS.items():
        kernels.register(Kernel(op, op, rounds=False, in_place=in_place))
    kernels.register(Kernel(aten._unsafe_view.default, aten._unsafe_view.default, rounds=False, is_view=True))
    kernels.register(Kernel(aten.index_put.default, _index_put, program=True, scalars=False))
    kernels.register(Kernel(aten.histc.default, _histogram))
    kernels.register(Kernel(aten.bmm.default, aten.bmm.default, reads=READERS[aten.bmm.default]))
    kernels.register(Kernel(aten.nan_to_num.default, aten.nan_to_num.default, complete=_replacements))
    for op in GEOMETRY:
        kernels.register(Kernel(op, op, scalars=False))


def _index_put(
    x: torch.Tensor, indices: list[Any], values: torch.Tensor, accumulate: bool = False, *, half: bool
) -> torch.Tensor:
    result: torch.Tensor = aten.index_put.default(x, indices, values, accumulate)  # the method takes no None
    return round_(result) if accumulate and half and x.dtype is torch.float32 else result


def _replacements(args: tuple[Any, ...], dtype: torch.dtype) -> tuple[Any, ...]:
    """Arguments of nan_to_num: infinities become the ends of the logical dtype, not of the shadow's."""
    x, nan, highest, lowest = (*args, None, None, None)[:4]
    end = largest(dtype)
    return x, nan, end if highest is None else highest, -end if lowest is None else lowest


def _histogram(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """The CPU has no integer form, and the models that ask for one count small integers."""
    return torch.histc(x.to(torch.float32), bins, min, max).to(x.dtype)
