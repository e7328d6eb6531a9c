"""Device programs: how the device computes composite operators, on shadows, rounding where it rounds."""

from __future__ import annotations

from typing import Any

import torch

from spyre_emulator import kernels, private
from spyre_emulator.kernels import Kernel
from spyre_emulator.numerics import round_

aten = private.aten
Tensor = torch.Tensor


def softmax(x: Tensor, dim: int, half_to_float: bool = False, *, half: bool) -> Tensor:
    """Softmax in 16 bit when `half` or when widening a 16-bit input."""
    result = torch.softmax(x, dim)
    return round_(result) if half else result


def register_kernels() -> None:
    """Fill the kernel table."""
    kernels.register(Kernel(aten._softmax.default, softmax, program=True))
    for op, in_place in _MOVERS.items():
        kernels.register(Kernel(op, op, rounds=False, in_place=in_place))
    for op in _EXACT:
        kernels.register(Kernel(op, op, rounds=False))


_MOVERS: dict[Any, Any] = {aten.index_copy.default: aten.index_copy_.default}
_EXACT: tuple[Any, ...] = (
    aten.neg.default,
    aten.abs.default,
    aten.relu.default,
    aten.index_select.default,
    aten.embedding.default,
)
