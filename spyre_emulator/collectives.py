"""Functional collectives, as compiled graphs and DTensor hold them: entries of the kernel table over `SpyreCCL`.

The compiled lowerings of all_reduce, all_gather and broadcast are published (torch-spyre:docs/source/runtime/index.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from spyre_emulator import dispatch, kernels, private
from spyre_emulator.distributed import NAME, SpyreCCL, reduced
from spyre_emulator.kernels import Kernel

Tensor = torch.Tensor


def _group(name: str) -> SpyreCCL:
    group = private.process_group(name)
    if not isinstance(group, SpyreCCL):
        raise RuntimeError(
            f"process group {name!r} has no backend for the device spyre; "
            f'use init_process_group("cpu:gloo,spyre:{NAME}")'
        )
    return group


def all_reduce(x: Tensor, reduce_op: str, group_name: str, *, half: bool) -> Tensor:
    """_c10d_functional::all_reduce"""
    operation = getattr(dist.ReduceOp, reduce_op.upper())
    return reduced(_group(group_name).everyones(x.contiguous()), operation, half=half)


def all_gather(x: Tensor, group_size: int, group_name: str, *, half: bool) -> Tensor:
    """_c10d_functional::all_gather_into_tensor, whose compiled lowering is published; its eager form is refused."""
    return torch.cat(_group(group_name).everyones(x.contiguous()))


def broadcast(x: Tensor, src: int, group_name: str, *, half: bool) -> Tensor:
    """_c10d_functional::broadcast"""
    return _group(group_name).everyones(x.contiguous())[src]


def register() -> None:
    """Enter the functional collectives into the kernel table and into PyTorch's dispatcher."""
    functional = torch.ops._c10d_functional
    programs: dict[Any, Callable[..., Any]] = {
        functional.all_reduce.default: all_reduce,
        functional.all_gather_into_tensor.default: all_gather,
        functional.broadcast.default: broadcast,
    }
    place = private.registers_for("_c10d_functional", "PrivateUse1")
    for op, program in programs.items():
        kernels.register(Kernel(op, program, program=True, scalars=False))
        place(op._schema.name.partition("::")[2], dispatch.call_for(op))
    kernels.register(Kernel(functional.wait_tensor.default, lambda x: x, rounds=False))
