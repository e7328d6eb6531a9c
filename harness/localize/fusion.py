"""Right op by op, wrong compiled: which part of the compiled graph."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from harness.localize.graphs import capture, computed, execution_of, module_of, neighbourhood, prefix, shape_of, slices
from harness.localize.numbers import relative
from harness.localize.ops import Execution

Tensor = torch.Tensor
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
GRAPHS = 4
"""Graphs of a forward that are searched: prefill, a decode step, and what graph breaks add."""

ROUNDINGS = 8.0
"""A slice is wrong when compiled and op-by-op results differ by more than so many roundings of the format:
both round each of a dozen ops, in another order."""


@dataclass(frozen=True)
class Fusion:
    """Where a compiled graph departs from its ops."""

    module: str
    graph: int
    execution: Execution
    error: float
    """Relative L2 difference of the compiled value from the op-by-op one."""
    prefix: fx.GraphModule
    args: list[Any]
    """The smallest part that shows it, and its operands."""


def find_fusion(
    model: nn.Module,
    forward: Callable[[nn.Module], object],
    compile_: Compile,
    *,
    floor: float,
    seconds: float,
) -> Fusion | None:
    """Return the first op from which on compiled code departs from the op-by-op results; None when none does.

    The forward's graphs are caught before they run. Each is run op by op, slice by slice; each slice is also
    compiled alone, on the same operands. In the first slice that differs, prefixes are compiled until the
    first op whose value differs is found.
    """
    deadline = time.monotonic() + seconds
    limit = ROUNDINGS * floor
    names = {name for name, _ in model.named_modules()}
    torch._dynamo.reset()
    compiled = _Compiled(compile_)
    for wanted in range(GRAPHS):
        graph = capture(model, forward, wanted)
        if graph is None or time.monotonic() > deadline:
            return None
        for part, args in _parts(graph.module, graph.args, names):
            error = _difference(part, args, compiled)
            if error > limit:
                return _bisect(part, args, compiled, limit, wanted, names)
            if time.monotonic() > deadline:
                return None
    return None


class _Compiled:
    """Compiles a slice once for all that are alike: the layers of a model share their code."""

    def __init__(self, compile_: Compile) -> None:
        self._compile = compile_
        self._known: dict[str, Callable[..., Any]] = {}

    def __call__(self, part: fx.GraphModule) -> Callable[..., Any]:
        shape = shape_of(part)
        if shape not in self._known:
            torch._dynamo.reset()
            self._known[shape] = self._compile(part)
        return self._known[shape]


def _parts(
    graph: fx.GraphModule, args: list[Any], names: Collection[str]
) -> Iterator[tuple[fx.GraphModule, list[Any]]]:
    """Yield each slice with the operands that it gets when the slices before it run op by op."""
    chain = slices(graph, names)
    values: dict[fx.Node, Any] = {}
    last = {one: node for node in chain.graph.nodes for one in node.all_input_nodes}
    operands = iter(args)
    for node in chain.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(operands)
            continue
        if node.op == "output":
            return
        inputs = [fx.map_arg(one, values.__getitem__) for one in node.args]
        if node.op == "call_module":
            part = chain.get_submodule(node.target)
            assert isinstance(part, fx.GraphModule)
            yield part, inputs
            values[node] = fx.Interpreter(part).run(*inputs)
        else:
            values[node] = node.target(*inputs, **node.kwargs)
        for one in node.all_input_nodes:
            if last[one] is node:
                values.pop(one, None)


def _difference(part: fx.GraphModule, args: list[Any], compiled: _Compiled) -> float:
    """Largest relative L2 difference of the compiled results from the op-by-op ones."""
    if not computed(part):
        return 0.0
    plain = _tensors(fx.Interpreter(part).run(*_copies(args)))
    try:
        with torch.no_grad():
            fused = _tensors(compiled(part)(*_copies(args)))
    except (RuntimeError, NotImplementedError):
        return math.inf
    worst = 0.0
    for one, other in zip(plain, fused, strict=True):
        error, odd = relative(one.detach().cpu(), other.detach().cpu())
        worst = max(worst, math.inf if odd else error or 0.0)
    return worst


def _bisect(
    part: fx.GraphModule, args: list[Any], compiled: _Compiled, limit: float, graph: int, names: Collection[str]
) -> Fusion:
    """The first node whose value differs; what comes before it is right alone."""
    nodes = computed(part)
    low, high = 0, len(nodes) - 1
    while low < high:
        middle = (low + high) // 2
        if _difference(prefix(part, nodes[middle]), args, compiled) > limit:
            high = middle
        else:
            low = middle + 1
    smallest = prefix(part, nodes[low])
    return Fusion(
        module=module_of(list(part.graph.nodes)[nodes[low]], names),
        graph=graph,
        execution=execution_of(part, nodes[low], _copies(args)),
        error=_difference(smallest, args, compiled),
        prefix=smallest,
        args=args,
    )


def shrunk(fusion: Fusion, compile_: Compile, limit: float) -> tuple[fx.GraphModule, list[Any], float]:
    """The smallest graph around the wrong op that still differs when compiled, its operands and the difference.

    Values that a smaller graph no longer computes become its operands, as they are op by op.
    """
    compiled = _Compiled(compile_)
    for depth in (1, 2, 4, 8, 16):
        graph, args = neighbourhood(fusion.prefix, fusion.args, depth)
        error = _difference(graph, args, compiled)
        if error > limit:
            return graph, args, error
    return fusion.prefix, fusion.args, fusion.error


def _copies(args: list[Any]) -> list[Any]:
    """Operands of their own for a part that may write to them; parameters are not written to."""
    return [one.clone() if isinstance(one, Tensor) and not isinstance(one, nn.Parameter) else one for one in args]


def _tensors(result: Any) -> list[Tensor]:
    leaves = result if isinstance(result, tuple | list) else (result,)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]
