"""Compiled graphs as they reach the device's compiler, cut into slices and prefixes that run alone."""

from __future__ import annotations

import re
from collections.abc import Callable
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


def slices(graph: fx.GraphModule) -> fx.GraphModule:
    """The graph as a chain of submodules, one per block of the model."""
    numbers: dict[int, int] = {}
    count, size, before = -1, 0, None
    for node in graph.graph.nodes:
        block = block_of(node)
        if before is None or (block is not None and block != before) or size >= SLICE:
            count, size = count + 1, 0
        before, size = block or before or "", size + 1
        numbers[id(node)] = count
    placed = graph.graph.nodes
    by_name = {node.name: numbers[id(node)] for node in placed}
    split: fx.GraphModule = split_module(graph, nn.Module(), lambda node: by_name[node.name], keep_original_order=True)
    return split


def prefix(graph: fx.GraphModule, wanted: int) -> fx.GraphModule:
    """The graph up to its node number ``wanted``, whose value is the only result."""
    copied = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    for index, node in enumerate(graph.graph.nodes):
        values[node] = copied.node_copy(node, lambda one: values[one])
        if index == wanted:
            copied.output(values[node])
            break
    copied.eliminate_dead_code()
    return fx.GraphModule(graph, copied)


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


def module_of(node: fx.Node) -> str:
    """Path of the innermost module whose code made the node; empty when unknown."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    path = re.sub(r"^(?:L\['self'\]|L__self__|self)\.?", "", path)
    path = re.sub(r"\.?_modules\['([^']+)'\]", r".\1", path)
    path = re.sub(r"\[(?:'([^']+)'|(\d+))\]", lambda found: f".{found[1] or found[2]}", path)
    return path.strip(".")


def block_of(node: fx.Node) -> str | None:
    """Path of the numbered block (``model.layers.3``) that the node belongs to; None when unknown."""
    path = module_of(node)
    found = re.match(r"^(.*?\.\d+)(?:\.|$)", path)
    return found[1] if found else path.rpartition(".")[0] if path else None
