"""Nodes of a traced graph: the fake values that tracing attached to them and to their operands."""

from __future__ import annotations

from typing import Any

import torch

from spyre_emulator import constraints, private

Node = torch.fx.Node
Tensor = torch.Tensor


def value_of(node: Any) -> Any:
    """The fake value that tracing attached to `node`; anything else as it is."""
    return node.meta.get("val") if isinstance(node, Node) else node


def values_of(args: Any) -> list[Any]:
    """`value_of` each argument, one level of lists deep."""
    return [type(a)(map(value_of, a)) if isinstance(a, (list, tuple)) else value_of(a) for a in args]


def is_on_device(value: Any) -> bool:
    """Whether `value` is a tensor on the emulated device."""
    return isinstance(value, Tensor) and value.device.type == private.DEVICE_NAME


def results_of(node: Node) -> list[Any]:
    """The (fake) results of `node`."""
    value = value_of(node)
    return list(value) if isinstance(value, (tuple, list)) else [value]


def logical_dtypes(node: Node) -> tuple[torch.dtype | None, ...]:
    """Logical dtype of each result of `node`."""
    return tuple(v.dtype if isinstance(v, Tensor) else None for v in results_of(node))


def operands_of(node: Node) -> list[Tensor]:
    """The (fake) tensor operands of `node`, one level of lists deep."""
    arguments = (*node.args, *node.kwargs.values())
    items = (value_of(item) for a in arguments for item in (a if isinstance(a, (list, tuple)) else (a,)))
    return [value for value in items if isinstance(value, Tensor)]


def operand_dtypes(node: Node) -> tuple[torch.dtype, ...]:
    """Logical dtypes of the operands of `node`."""
    return tuple(v.dtype for v in operands_of(node))


def concrete_operands(node: Node, sizes: dict[Any, int]) -> tuple[Any, ...]:
    """(shape, strides, dtype) of each operand, with symbolic sizes replaced by `sizes` or by their hints."""

    def concrete(dim: Any) -> int:
        if sizes and isinstance(dim, torch.SymInt):
            return int(dim.node.expr.subs(sizes))
        return private.size_hint(dim)

    return tuple((tuple(map(concrete, v.shape)), tuple(map(concrete, v.stride())), v.dtype) for v in operands_of(node))


def geometry_of(node: Node) -> tuple[constraints.Geometry, ...]:
    """Shape and dtype of each operand of `node`."""
    return tuple((shape, dtype) for shape, _, dtype in concrete_operands(node, {}))


def refused_arguments(node: Node) -> bool:
    """Whether the published stack refuses the arguments of `node`."""
    kwargs = {k: value_of(v) for k, v in node.kwargs.items()}
    return constraints.refused_arguments(node.target, tuple(values_of(node.args)), kwargs) is not None


def operand_nodes(node: Node) -> list[Node]:
    """The arguments of `node` that are tensors, one level of lists deep."""
    found: list[Node] = []
    for a in (*node.args, *node.kwargs.values()):
        for item in a if isinstance(a, (list, tuple)) else (a,):
            if isinstance(item, Node) and isinstance(item.meta.get("val"), Tensor):
                found.append(item)
    return found
