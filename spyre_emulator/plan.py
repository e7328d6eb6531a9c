"""A flat ahead-of-time plan of one graph: its steps, what is known of them, and its execution."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from spyre_emulator import dump, fallbacks, kernels, operators, private, settings
from spyre_emulator.codegen import Code
from spyre_emulator.dtypes import device_format
from spyre_emulator.fallbacks import UnsupportedError
from spyre_emulator.nodes import (
    Node,
    concrete_operands,
    logical_dtypes,
    operand_dtypes,
    refused_arguments,
    value_of,
    values_of,
)
from spyre_emulator.outcomes import check_operands
from spyre_emulator.placement import Memory, plan_memory, usable_scratchpad
from spyre_emulator.propagation import Layouts, propagate
from spyre_emulator.recording import Key, PlanFacts
from spyre_emulator.steps import COPIES, Step, host_constant, is_sole_update, kind_of, role_of

Tensor = torch.Tensor


_RESHAPES = (private.aten.view.default, private.aten._unsafe_view.default)
COMPUTES = ("native", "fallback")
"""Kinds of steps that are operators."""


def _encoding(kernel: kernels.Kernel, outcome: kernels.Outcome, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with numbers that are known at run time alone (symbolic sizes) encoded, as eager execution does."""
    return lambda *args, **kwargs: call(*kernels.encoded(kernel, outcome, args), **kwargs)


class Plan:
    """An executable plan of `graph`; call `run` with the list of graph inputs."""

    def __init__(self, graph: torch.fx.GraphModule, recompilation: bool = False) -> None:
        nodes = graph.graph.nodes
        self.graph = graph
        self.inputs: list[Node] = [n for n in nodes if n.op == "placeholder"]
        self.outputs: list[Any] = list(next(n for n in nodes if n.op == "output").args[0])
        self.attributes = {n: getattr(graph, n.target) for n in nodes if n.op == "get_attr"}
        self.unimplemented: list[str] = []
        """Operators for which the published stack compiles a runner that only raises."""
        self._last_use = {a: n for n in nodes for a in n.all_input_nodes}
        self._kinds = {n: kind_of(n) for n in nodes if n.op == "call_function"}
        self.layouts, self.memory = self._arrange()
        self.steps = [self._step(n) for n in nodes if n.op == "call_function"]
        self.facts = self._facts(recompilation)
        self.launches = 0
        """Runs so far."""
        self._code: Code | None = None
        self._bound = (-1, False)
        self._tallies: dict[tuple[int, ...], Counter[Key]] = {}
        self._symbols = [i for i, n in enumerate(self.inputs) if isinstance(value_of(n), torch.SymInt)]

    # ---- planning -------------------------------------------------------------------------------------

    def _arrange(self) -> tuple[Layouts, Memory]:
        """Layouts and memory plan; raises as the published compiler does where the pool is too small."""
        nodes = list(self.graph.graph.nodes)
        roles = {n: role_of(n, self._kinds.get(n)) for n in nodes}
        layouts = propagate(nodes, roles.__getitem__)
        try:
            return layouts, plan_memory(nodes, roles.__getitem__, layouts)
        except RuntimeError as refusal:
            raise private.inductor_error(refusal) from None

    def _step(self, node: Node) -> Step:
        step = self._placed(node)
        return step._replace(frees=tuple(a for a in node.all_input_nodes if self._last_use[a] is node))

    def _placed(self, node: Node) -> Step:
        target: Any = node.target
        args = tuple(host_constant(a) for a in node.args)
        kwargs = {k: host_constant(v) for k, v in node.kwargs.items()}
        if not isinstance(target, private.OpOverload):
            if not callable(target) or isinstance(target, torch._ops.HigherOrderOperator):
                raise UnsupportedError(fallbacks.unsupported(f"the operator {target} in a graph"))
            return Step(node, "size", target, args, kwargs)
        kind = self._kinds[node]
        if kind in ("host", "size"):
            return Step(node, kind, target, node.args, dict(node.kwargs))
        copy = COPIES.get(target)
        if copy is not None:
            found = self.layouts.restickifies.get(node, ())
            return Step(node, "copy", copy.make(node), args[: copy.arity], {}, restickifies=found)
        kernel = kernels.lookup(target)
        if kernel.is_view:  # a result may lie otherwise than the traced one, where a view of it is a copy
            call = Tensor.reshape if target in _RESHAPES else kernel.compute
            return Step(node, "view", call, args, kwargs)
        return self._operator(node, kernel, args, kwargs)

    def _operator(self, node: Node, kernel: kernels.Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step:
        found = self.layouts.restickifies.get(node, ())
        self._check(node, kernel, found)
        check_operands(kernel.op, tuple(values_of(node.args)), {k: value_of(v) for k, v in node.kwargs.items()})
        outcome = kernels.outcome(kernel, operand_dtypes(node), logical_dtypes(node))
        if outcome.half and kernel.numbers:
            args = kernels.encoded(kernel, outcome, args)
        call = functools.partial(kernel.compute, half=outcome.half) if kernel.program else kernel.compute
        if kernel.in_place is not None and is_sole_update(node):
            call = kernel.in_place
        if outcome.half and any(isinstance(a, Node) and not isinstance(value_of(a), Tensor) for a in args):
            call = _encoding(kernel, outcome, call)
        return Step(node, self._kinds[node], call, args, kwargs, outcome.rounds, restickifies=found)

    def _check(self, node: Node, kernel: kernels.Kernel, found: tuple[Any, ...]) -> None:
        """Refuse what the published stack refuses, where that is asked for."""
        published, strict = settings.current.coverage == "published", settings.current.strict
        if not published and not strict:
            return
        state = operators.state_of(kernel.op, compiled=True)
        kwargs = {k: value_of(v) for k, v in node.kwargs.items()}
        what = fallbacks.refusal(kernel.op, tuple(values_of(node.args)), kwargs)
        unrestickified = next((r for r in found if not r.supported), None)
        if what is None and unrestickified is not None:
            what = f"ReStickifyOpHBM on DataFormats.{device_format(unrestickified.dtype).name}"
        if published and state == operators.MISSING:
            self.unimplemented.append(str(kernel.op))
        elif published and state == operators.ENABLED and what is not None:
            raise private.inductor_error(UnsupportedError(fallbacks.unsupported(what)))
        elif strict and (state != operators.ENABLED or what is not None):
            raise UnsupportedError(f"{kernel.op} would fall back to the CPU and strict mode forbids that")

    def _facts(self, recompilation: bool) -> PlanFacts:
        kinds = Counter(s.kind for s in self.steps)
        made = [b for b, p in self.memory.places.items() if p.where != "input"]
        shapes, sticks = self.layouts.shapes, self.layouts.sticks
        memory = self.memory
        usable = usable_scratchpad()
        return PlanFacts(
            native=kinds["native"],
            fallback=kinds["fallback"],
            views=kinds["view"],
            padded_bytes=sum(shapes[b].padded_bytes(sticks[b]) for b in made),
            restickifies=sum(len(s.restickifies) for s in self.steps),
            restickified_bytes=sum(r.bytes for s in self.steps for r in s.restickifies),
            scratchpad_buffers=memory.count("lx"),
            scratchpad_peak=memory.scratchpad_peak,
            pool_buffers=memory.count("pool"),
            pool_peak=memory.pool_peak,
            working_set=max(memory.working_sets.values(), default=0),
            spilling_steps=sum(size > usable for size in memory.working_sets.values()),
            estimated_seconds=sum(dump.cost_of(self, s).seconds for s in self.steps if s.kind in COMPUTES),
            recompilation=recompilation,
        )

    # ---- execution ------------------------------------------------------------------------------------

    def run(self, inputs: list[Any]) -> list[Any]:
        """Graph outputs for `inputs`."""
        if self.unimplemented:
            names = ", ".join(sorted(set(self.unimplemented)))
            raise UnsupportedError(f"SpyreUnimplementedRunner: the graph holds operators without a lowering: {names}")
        self.launches += 1
        if settings.current.launch == "graph":
            self._rebuild()
        return self.code.run(inputs)

    def _rebuild(self) -> None:
        """Build the graph on the data path, as the runtime did before plans were prepared."""
        self.layouts, self.memory = self._arrange()
        self.steps = [self._step(s.node) for s in self.steps]
        self._code = None

    @property
    def code(self) -> Code:
        """The generated function, bound anew where hooks changed."""
        bound = (kernels.generation, settings.current.nan_padding)
        if self._code is None or self._bound != bound:
            self._code = Code(self)
            self._bound = bound
        return self._code

    @property
    def source(self) -> str:
        """Python source of the plan."""
        return self.code.source

    def text(self) -> str:
        """The plan to read, one line per step."""
        return dump.as_text(self)

    def json(self) -> str:
        """The plan as JSON."""
        return dump.as_json(self)

    # ---- counting -------------------------------------------------------------------------------------

    def binding(self, inputs: list[Any]) -> tuple[int, ...]:
        """Values of the symbolic sizes among `inputs`."""
        return tuple([inputs[i] for i in self._symbols])

    def tally(self, binding: tuple[int, ...]) -> Counter[Key]:
        """Operator executions of one run; views, copies and size arithmetic are not among them."""
        known = self._tallies.get(binding)
        if known is None:
            sizes = {value_of(self.inputs[i]).node.expr: v for i, v in zip(self._symbols, binding, strict=True)}
            counted = [s.node for s in self.steps if s.kind in ("native", "fallback")]
            known = Counter((n.target, True, concrete_operands(n, sizes), refused_arguments(n)) for n in counted)
            self._tallies[binding] = known
        return known
