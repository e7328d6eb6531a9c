"""Seeded faults: weights changed on the device alone, results of ops changed by op and shape, and the catalogue."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import spyre_emulator
from harness.localize.boundaries import watched
from harness.localize.companion import Boundary
from spyre_emulator import kernels
from spyre_emulator.kernels import OpCall

Tensor = torch.Tensor
Shapes = tuple[tuple[int, ...], ...]


@dataclass
class Truth:
    """Where a fault acts, noted as it acts first."""

    module: str | None = None
    op: str | None = None
    fired: int = 0


@dataclass(frozen=True)
class Seeded:
    """A fault that can be switched on for one candidate."""

    name: str
    group: str
    switch: Callable[[nn.Module, Truth], AbstractContextManager[None]] = field(repr=False)
    compiled: bool = False
    """Acts in compiled code only."""
    resets: bool = False
    """Acts while a graph is compiled, so that it has to be compiled anew."""


@dataclass(frozen=True)
class Variant:
    """An op of the model with its geometry, and the module that runs it first."""

    op: str
    shapes: Shapes
    module: str


class _Ops(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.found: dict[tuple[str, Shapes], str] = {}

    def follow(self, boundary: Boundary) -> None:
        if boundary.kind == "enter":
            self.stack.append(boundary.path)
        else:
            self.stack.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        first = result[0] if isinstance(result, tuple) and result else result
        view = any(one.alias_info is not None for one in func._schema.returns)
        if isinstance(first, Tensor) and first.is_floating_point() and first.numel() > 8 and not view:
            shapes = tuple(tuple(one.shape) for one in args if isinstance(one, Tensor) and one.device.type == "spyre")
            if shapes:
                self.found.setdefault((str(func), shapes), self.stack[-1] if self.stack else "")
        return result


def variants(candidate: nn.Module, forward: Callable[[nn.Module], object]) -> list[Variant]:
    """The op variants of a forward that can be made wrong."""
    ops = _Ops()
    with watched(candidate, ops.follow), ops, torch.no_grad():
        forward(candidate)
    skipped = ("_to_copy", "copy", "empty", "zeros", "ones", "arange", "scalar_tensor", "full", "clone")
    return [
        Variant(op, shapes, module)
        for (op, shapes), module in ops.found.items()
        if not any(op.startswith(f"aten.{name}") for name in skipped)
    ]


def weight_fault(chance: random.Random, candidate: nn.Module, kind: str) -> Seeded:
    """One parameter changed on the device."""
    named = {name: one for name, one in candidate.named_parameters() if _fits(kind, name, one)}
    name = chance.choice(sorted(named))
    factor = chance.choice((0.9, 0.95, 1.05, 1.1, 1.3))
    index, other = chance.randrange(1 << 30), chance.randrange(1 << 30)

    @contextmanager
    def switch(model: nn.Module, truth: Truth) -> Iterator[None]:
        parameter = model.get_parameter(name)
        before = parameter.detach().cpu().clone()
        changed = _changed(before, kind, factor, index, other)
        parameter.data.copy_(changed)
        truth.module, truth.op, truth.fired = name.rpartition(".")[0], None, 1
        try:
            yield
        finally:
            parameter.data.copy_(before)

    what = f" x{factor}" if kind == "scaled weight" else ""
    return Seeded(f"{kind}{what}: {name}", kind, switch)


def _fits(kind: str, name: str, one: Tensor) -> bool:
    if kind == "dropped bias":
        return name.endswith("bias") and float(one.detach().cpu().float().norm()) > 0
    if kind == "zeroed head":
        return one.dim() == 2 and any(word in name for word in ("o_proj.weight", "attention.output.dense.weight"))
    if kind == "swapped channels":
        return one.dim() == 2 and "embed" not in name and min(one.shape) > 16
    return name.endswith("weight") and (one.dim() == 1 or "embed" not in name)


def _changed(before: Tensor, kind: str, factor: float, index: int, other: int) -> Tensor:
    one = before.clone()
    if kind == "scaled weight":
        return one * factor
    if kind == "one outlier":
        flat = one.view(-1)
        flat[index % flat.numel()] = 30 * float(before.float().abs().max())
    elif kind == "swapped channels":
        a, b = index % len(one), other % len(one)
        b = b if a != b else (a + 1) % len(one)
        one[[a, b]] = before[[b, a]]
    elif kind == "zeroed head":
        width = max(8, one.shape[1] // 8)
        start = (index % (one.shape[1] // width)) * width
        one[:, start : start + width] = 0
    elif kind == "dropped bias":
        one.zero_()
    elif kind == "truncated weights":
        one = _truncated(one, 5)
    return one


def _truncated(x: Tensor, bits: int) -> Tensor:
    mantissa, exponent = torch.frexp(x.float())
    return torch.ldexp(torch.trunc(mantissa * 2.0**bits) / 2.0**bits, exponent).to(x.dtype)


def _outlier(r: Tensor) -> Tensor:
    made = r.clone()
    made.view(-1)[made.numel() // 3] = 20 * made.abs().max()
    return made


def _stale(r: Tensor) -> Tensor:
    made = r.clone()
    if r.dim() > 1 and r.shape[-2] > 1:
        made[..., -1, :] = made[..., -2, :]
    return made


EFFECTS: dict[str, Callable[[Tensor], Tensor]] = {
    "result x1.04": lambda r: r * 1.04,
    "second half zero": lambda r: torch.cat([r[..., : r.shape[-1] // 2], 0 * r[..., r.shape[-1] // 2 :]], -1),
    "rows shifted by one": lambda r: r.roll(1, -2) if r.dim() > 1 else r.roll(1, -1),
    "one outlier in the result": _outlier,
    "saturated": lambda r: r.clamp(-0.5 * r.abs().max(), 0.5 * r.abs().max()),
    "truncated instead of rounded": lambda r: _truncated(r, 6),
    "channels swapped": lambda r: r[..., [1, 0, *range(2, r.shape[-1])]] if r.shape[-1] > 1 else r.clone(),
    "last row stale": _stale,
}


def op_fault(chance: random.Random, found: list[Variant], *, compiled: bool) -> Seeded:
    """The results of one op variant changed, in eager and compiled code or in compiled code only."""
    variant = chance.choice(found)
    effect = chance.choice(sorted(EFFECTS))

    @contextmanager
    def switch(model: nn.Module, truth: Truth) -> Iterator[None]:
        truth.module, truth.op = variant.module, variant.op
        name = variant.op.replace("_.", ".", 1)

        def hook(call: OpCall) -> Any:
            result = call.proceed()
            shapes = tuple(tuple(one.shape) for one in call.args if isinstance(one, Tensor))
            if shapes != variant.shapes or (compiled and call.mode != "compiled"):
                return result
            truth.fired += 1
            if isinstance(result, tuple):
                return (EFFECTS[effect](result[0]), *result[1:])
            return EFFECTS[effect](result)

        kernels.add_hook(name, hook)
        try:
            yield
        finally:
            kernels.remove_hook(name, hook)

    mode = ", compiled only" if compiled else ""
    return Seeded(f"{effect}: {variant.op}{list(variant.shapes)}{mode}", effect, switch, compiled)


def position_fault() -> Seeded:
    """Positions of the decode step, or of learned embeddings, off by one on the device."""

    @contextmanager
    def switch(model: nn.Module, truth: Truth) -> Iterator[None]:
        path, module = next(
            (path, one)
            for path, one in model.named_modules()
            if path.endswith(("rotary_emb", "position_embeddings")) and next(one.children(), None) is None
        )
        forward = module.forward

        def late(*args: Any, **kwargs: Any) -> Any:
            truth.fired += 1
            if path.endswith("rotary_emb"):
                if "position_ids" in kwargs:
                    kwargs["position_ids"] = kwargs["position_ids"] + 1
                else:
                    args = (args[0], args[1] + 1, *args[2:])
            else:
                args = (args[0] + 1, *args[1:])
            return forward(*args, **kwargs)

        truth.module, truth.op = path, None
        module.forward = late
        try:
            yield
        finally:
            del module.forward

    return Seeded("position off by one", "position off by one", switch)


def catalogue(compiled: bool) -> list[Seeded]:
    """The silent faults of the emulator's catalogue, by id."""
    found = []
    for fault in spyre_emulator.fault_catalogue():
        if fault.kind != "silent" or fault.not_modelled:
            continue

        def switch(model: nn.Module, truth: Truth, name: str = fault.id) -> AbstractContextManager[None]:
            truth.fired = 1
            return spyre_emulator.faults(name)

        title = f"{fault.id} {fault.title}" + (" (compiled)" if compiled else "")
        found.append(Seeded(title, "catalogue", switch, compiled, resets=compiled))
    return found


WEIGHTS = ("scaled weight", "one outlier", "swapped channels", "zeroed head", "dropped bias", "truncated weights")
