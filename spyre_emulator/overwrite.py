"""``torch.ops.spyre.overwrite`` and ``overwrite_f``: write a block into a tensor at given offsets; both are deprecated.

``overwrite(input, output, dims, offsets)`` writes `input` into `output` from ``offsets[i]`` on along ``dims[i]``;
``overwrite_f`` returns the result instead (torch-spyre:torch_spyre/_inductor/customops.py, torch-spyre#2488). A
graph that is compiled holds ``overwrite_f``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch

from spyre_emulator import dispatch, kernels, private
from spyre_emulator.kernels import Kernel

Tensor = torch.Tensor
ARGUMENTS = "int[] dims, int[] offsets"


def block(output: Tensor, sizes: Sequence[int], dims: Sequence[int], offsets: Sequence[int]) -> Tensor:
    """The view of `output` that a write of `sizes` at `offsets` along `dims` covers; IndexError beyond its end."""
    view = output
    for dim, offset in zip(dims, offsets, strict=True):
        if not 0 <= offset <= output.shape[dim] - sizes[dim]:
            raise IndexError(
                f"spyre::overwrite: {sizes[dim]} at offset {offset} of dimension {dim} do not fit into "
                f"{tuple(output.shape)}"
            )
        view = view.narrow(dim, offset, sizes[dim])
    return view


def overwritten(values: Tensor, output: Tensor, dims: Sequence[int], offsets: Sequence[int]) -> Tensor:
    """A copy of `output` with `values` written into it."""
    result = output.clone()
    block(result, values.shape, dims, offsets).copy_(values)
    return result


def overwrite(values: Tensor, output: Tensor, dims: Sequence[int], offsets: Sequence[int]) -> None:
    """Write `values` into `output`."""
    warnings.warn("torch.ops.spyre.overwrite is deprecated; assign to a slice", FutureWarning, stacklevel=2)
    output.copy_(torch.ops.spyre.overwrite_f(values, output, dims, offsets))


def register() -> None:
    """Define both operators for the device."""
    private.define("spyre", f"overwrite_f(Tensor input, Tensor output, {ARGUMENTS}) -> Tensor")
    private.define("spyre", f"overwrite(Tensor input, Tensor(a!) output, {ARGUMENTS}) -> ()")
    op = torch.ops.spyre.overwrite_f.default
    kernels.register(Kernel(op, overwritten, rounds=False, scalars=False))
    on_device, meta = (private.registers_for("spyre", key) for key in ("PrivateUse1", "Meta"))
    on_device("overwrite_f", dispatch.call_for(op))
    on_device("overwrite", overwrite)
    meta("overwrite_f", lambda values, output, dims, offsets: torch.empty_like(output))
    meta("overwrite", lambda values, output, dims, offsets: None)
