"""Compiled graphs as they reach the device's compiler, cut into slices and prefixes that run alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch.fx.passes.split_module import split_module

from harness.localize.ops import Execution

Tensor = torch.Tensor
SLICE = 96
"""Most nodes in a slice where nothing says which block they belong to."""


class Captured(Exception):  # noqa: N818 - the way out of a forward whose graph has been caught
    """The wanted graph is about to run."""


@dataclass
class Graph:
    """An ATen graph and the operands that it is about to run with."""

    module: fx.GraphModule
    args: list[Any]


class Capture:
    """A backend for ``torch.compile`` that runs graphs op by op and catches the one numbered ``wanted``."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._runs = 0
        self.graph: Graph | None = None

    def backend(self) -> Callable[..., Any]:
        """The backend."""
        backend: Callable[..., Any] = aot_autograd(fw_compiler=self._compiled, inference_compiler=self._compiled)
        return backend

    def _compiled(self, module: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def run(args: list[Any]) -> Any:
            if self._runs == self._wanted:
                self.graph = Graph(module, list(args))
                raise Captured
            self._runs += 1
            return fx.Interpreter(module).boxed_run(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def capture(model: nn.Module, forward: Callable[[nn.Module], object], wanted: int) -> Graph | None:
    """The graph that runs as number ``wanted`` (from 0) in a compiled forward; None when fewer run."""
    catcher = Capture(wanted)
    torch._dynamo.reset()
    try:
        with torch.no_grad():
            forward(torch.compile(model, backend=catcher.backend(), dynamic=False))  # type: ignore[arg-type]
    except Captured:
        pass
    finally:
        torch._dynamo.reset()
    return catcher.graph


def slices(graph: fx.GraphModule, modules: Collection[str]) -> fx.GraphModule:
    """The graph as a chain of submodules, one per stretch of nodes that a block or a child of a block made."""
    numbers: dict[str, int] = {}
    count, size, before = -1, 0, None
    for node in graph.graph.nodes:
        part = part_of(module_of(node, modules))
        if before is None or (part and part != before) or size >= SLICE:
            count, size = count + 1, 0
        before, size = part or before or "", size + 1
        numbers[node.name] = count
    split: fx.GraphModule = split_module(graph, nn.Module(), lambda node: numbers[node.name], keep_original_order=True)
    return split


def shape_of(graph: fx.GraphModule) -> str:
    """What two slices have in common that compile to the same code: ops, constants, geometry, not names."""
    numbers = {node: index for index, node in enumerate(graph.graph.nodes)}
    lines = []
    for node in graph.graph.nodes:
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda one: f"%{numbers[one]}")
        geometry = _geometry(node.meta.get("val")) if node.op == "placeholder" else ""
        lines.append(f"{node.op} {node.target if node.op == 'call_function' else ''} {args} {kwargs} {geometry}")
    return "\n".join(lines)


def _geometry(value: Any) -> str:
    if not isinstance(value, Tensor):
        return str(value)
    return f"{value.shape} {value.stride()} {value.storage_offset()} {value.dtype}"


def prefix(graph: fx.GraphModule, wanted: int) -> fx.GraphModule:
    """The graph up to its node number ``wanted``; results are that node and all values that are needed after it."""
    nodes = list(graph.graph.nodes)
    kept = nodes[: wanted + 1]
    later = set(nodes[wanted + 1 :])
    copied = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    for node in kept:
        values[node] = copied.node_copy(node, lambda one: values[one])
    live = [node for node in kept if node.op != "placeholder" and (node is kept[-1] or later & set(node.users))]
    copied.output(tuple(values[node] for node in live))
    copied.eliminate_dead_code()
    return fx.GraphModule(graph, copied)


def neighbourhood(graph: fx.GraphModule, args: list[Any], depth: int) -> tuple[fx.GraphModule, list[Any]]:
    """The last op of a prefix with the ops at most ``depth - 1`` before it, and the values that they start from."""
    nodes = [node for node in graph.graph.nodes if node.op != "output"]
    kept, edge = set(), {nodes[-1]}
    for _ in range(depth):
        kept |= edge
        edge = {one for node in edge for one in node.all_input_nodes if one.op == "call_function"} - kept
    starts = [node for node in nodes if node not in kept and kept & set(node.users)]
    values = _values(graph, args, starts)
    copied = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in starts:
        made[node] = copied.placeholder(node.name)
        made[node].meta = node.meta
    for node in nodes:
        if node in kept:
            made[node] = copied.node_copy(node, lambda one: made[one])
    copied.output(made[nodes[-1]])
    return fx.GraphModule(graph, copied), values


def _values(graph: fx.GraphModule, args: list[Any], wanted: list[fx.Node]) -> list[Any]:
    """What the wanted nodes hold when the graph runs op by op."""
    found: dict[fx.Node, Any] = {}

    class Watch(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if n in wanted:
                found[n] = result
            return result

    Watch(graph).run(*args)
    return [found[node] for node in wanted]


def computed(graph: fx.GraphModule) -> list[int]:
    """Numbers of the nodes that compute a floating point tensor."""
    return [
        index
        for index, node in enumerate(graph.graph.nodes)
        if node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and isinstance(node.meta.get("val"), Tensor)
        and node.meta["val"].is_floating_point()
    ]


def execution_of(graph: fx.GraphModule, wanted: int, args: list[Any]) -> Execution:
    """The node's op with the operands that it gets when the graph runs op by op."""
    found: list[Execution] = []
    target = list(graph.graph.nodes)[wanted]

    class Watch(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            if n is target:
                operands, named = self.fetch_args_kwargs_from_env(n)
                found.append(Execution(n.target, operands, named))
            return super().run_node(n)

    Watch(graph).run(*args)
    return found[0]


def module_of(node: fx.Node, modules: Collection[str]) -> str:
    """Path, among the model's ``modules``, of the innermost one whose code made the node; empty when unknown."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    words = [word for word in re.split(r"[.\[\]']+", path) if word and word != "_modules"]
    candidates = (".".join(words[start:]) for start in range(len(words)))
    return next((name for name in candidates if name in modules), "")


def part_of(path: str) -> str:
    """The numbered block (``model.layers.3``) and its child that a path lies in."""
    found = re.match(r"^(.*?\.\d+(?:\.[^.]+)?)(?:\.|$)", path)
    return found[1] if found else path
