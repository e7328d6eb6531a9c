"""The steps of a plan: one per node of the graph, with what the host calls for it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from spyre_emulator import conversions, kernels, operators, private, transfers
from spyre_emulator.dispatch import host_argument
from spyre_emulator.dtypes import shadow_dtype
from spyre_emulator.nodes import (
    Node,
    geometry_of,
    is_on_device,
    operands_of,
    results_of,
    value_of,
)
from spyre_emulator.propagation import Role
from spyre_emulator.sticks import Restickify

aten = private.aten
Tensor = torch.Tensor


class Step(NamedTuple):
    """One node of the graph as the plan runs it."""

    node: Node
    kind: str
    """``native``, ``fallback``, ``view``, ``copy`` (casts, transfers, mutations), ``host`` or ``size``."""
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    rounds: bool = False
    frees: tuple[Node, ...] = ()
    """Values that no later step reads."""
    restickifies: tuple[Restickify, ...] = ()


def kind_of(node: Node) -> str:
    """How the plan runs `node`: see `Step.kind`."""
    target: Any = node.target
    if not isinstance(target, private.OpOverload):
        return "size"
    if not any(map(is_on_device, [*operands_of(node), *results_of(node)])):
        return "host" if isinstance(value_of(node), Tensor) else "size"
    if target in COPIES:
        return "copy"
    kernel = kernels.lookup(target)
    if kernel.is_view:
        return "view"
    state = operators.state_with_operands(kernel.op, geometry_of(node), compiled=True)
    return "native" if state in operators.ON_DEVICE else "fallback"


def role_of(node: Node, kind: str | None) -> Role:
    """What `node` does to layouts, given its kind where it is a step."""
    if node.op in ("placeholder", "get_attr"):
        return "input"
    if node.op == "output":
        return "output"
    if kind == "copy":
        if node.target is aten.copy_.default:
            return "write" if is_on_device(value_of(node.args[0])) else "none"
        arrives = is_on_device(value_of(node)) and not any(map(is_on_device, operands_of(node)))
        return "host" if arrives else "operator" if is_on_device(value_of(node)) else "none"
    if kind == "native":
        return "operator"
    if kind == "fallback":
        return "host"
    return "view" if kind == "view" or node.target is operator.getitem else "none"


def host_constant(a: Any) -> Any:
    """Argument `a` of a node as the host call takes it; nodes stay."""
    if isinstance(a, Node):
        return a
    if isinstance(a, (list, tuple)):
        return type(a)([host_constant(x) for x in a])
    return host_argument(a)


def is_sole_update(node: Node) -> bool:
    """Whether `node` computes the new content of a graph input that nothing else reads: it may write into it."""
    target = node.args[0]
    if not isinstance(target, Node) or target.op != "placeholder":
        return False
    others = [u for u in target.users if u is not node]
    return len(others) == 1 and others[0].target is aten.copy_.default and others[0].args == (target, node)


class CopyMaker(NamedTuple):
    """A node that moves data rather than computing: makes the host call from the node."""

    make: Callable[[Node], Callable[..., Any]]
    arity: int


def _to_copy(node: Node) -> Callable[..., Any]:
    source, result = value_of(node.args[0]), value_of(node)
    memory_format = node.kwargs.get("memory_format")
    if is_on_device(source) and is_on_device(result):
        return lambda x: transfers.to_copy(source, x, result.dtype, memory_format)  # type: ignore[arg-type]
    if is_on_device(result):
        return lambda x: conversions.to_device(x, result.dtype).clone()
    return lambda x: conversions.to_host(x, source.dtype).to(result.dtype, copy=True)


def _copy_into(node: Node) -> Callable[..., Any]:
    destination, source = value_of(node.args[0]), value_of(node.args[1])

    def call(target: Tensor, values: Tensor) -> Tensor:
        if target is values:
            return target  # an operator wrote into the graph input already
        if not is_on_device(destination):
            return target.copy_(conversions.to_host(values, source.dtype))
        if not is_on_device(source):
            return target.copy_(conversions.to_device(values, destination.dtype))
        return target.copy_(transfers.cast(values, source.dtype, destination.dtype))

    return call


def _functional_copy(node: Node) -> Callable[..., Any]:
    into = _copy_into(node)
    destination = value_of(node.args[0])

    def call(target: Tensor, values: Tensor) -> Tensor:
        result: Tensor = into(torch.empty_like(target, dtype=shadow_dtype(destination.dtype)), values)
        return result

    return call


def _clone(node: Node) -> Callable[..., Any]:
    memory_format = node.kwargs.get("memory_format") or torch.preserve_format
    return lambda x: x.clone(memory_format=memory_format)


COPIES: dict[Any, CopyMaker] = {
    aten._to_copy.default: CopyMaker(_to_copy, 1),
    aten.copy_.default: CopyMaker(_copy_into, 2),
    aten.copy.default: CopyMaker(_functional_copy, 2),
    aten.clone.default: CopyMaker(_clone, 1),
    aten.lift_fresh_copy.default: CopyMaker(_clone, 1),
}
"""Nodes that move or cast values."""
