"""``torch.compile`` for the device: Dynamo backend ``spyre``, routing of the default backend, plan building."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch

from spyre_emulator import private, recording
from spyre_emulator.plan import Plan

plans: list[Plan] = []
"""Every plan built in this process, oldest first."""
InputHook = Callable[[torch.Tensor], torch.Tensor]
input_hooks: list[InputHook] = []
"""See each device tensor that enters a plan and may hand in another: faults live here."""
GraphHook = Callable[[torch.fx.GraphModule], bool]
graph_hooks: list[GraphHook] = []
"""Rewrite a copy of a plan's graph and tell whether they did; active where the plan runs, not where it was built."""


class Variants:
    """The plans of one graph under each set of graph hooks; without hooks it is the plain plan."""

    def __init__(self, graph: torch.fx.GraphModule, plain: Plan) -> None:
        self.graph = graph
        self.plain = plain
        self._rewritten: dict[tuple[GraphHook, ...], Plan] = {}

    def current(self) -> Plan:
        """The plan under the hooks that are active now."""
        if not graph_hooks:
            return self.plain
        key = tuple(graph_hooks)
        if key not in self._rewritten:
            copied = torch.fx.GraphModule(self.graph, copy.deepcopy(self.graph.graph))
            changed = [hook(copied) for hook in key]
            self._rewritten[key] = Plan(copied, self.plain.facts.recompilation) if any(changed) else self.plain
        return self._rewritten[key]


def _entering(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.device.type != private.DEVICE_NAME:
        return value
    for hook in input_hooks:
        value = hook(value)
    return value


def build(graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[[list[Any]], list[Any]]:
    """The boxed callable of `graph`, which is functional aten with mutations of inputs at its end."""
    private.drop_synchronization(graph)
    plan = Plan(graph, private.is_recompilation())
    plans.append(plan)
    variants = Variants(graph, plan)
    for record in recording.active:
        record.compiled_plans.append(plan)

    def call(inputs: list[Any]) -> list[Any]:
        for record in recording.active:
            record.plans[(plan, plan.binding(inputs))] += 1
        with torch.no_grad():
            if input_hooks:
                inputs = [_entering(value) for value in inputs]
            return variants.current().run(inputs) if graph_hooks else plan.run(inputs)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def backend(graph: torch.fx.GraphModule, example_inputs: Any, **_: Any) -> Callable[..., Any]:
    """The Dynamo backend: AOT tracing to aten, then one plan."""
    started = time.perf_counter()
    try:
        compiled: Callable[..., Any] = private.aot(graph, example_inputs, build)
        return compiled
    finally:
        elapsed = time.perf_counter() - started
        for record in recording.active:
            record.compile_seconds += elapsed


def _touches_device(graph: Any, inputs: Any) -> bool:
    tensors = [*inputs, *graph.parameters(), *graph.buffers()]
    if any(isinstance(t, torch.Tensor) and t.device.type == private.DEVICE_NAME for t in tensors):
        return True
    devices = (v for n in graph.graph.nodes for v in (*n.args, *n.kwargs.values()))
    return any(isinstance(d, torch.device) and d.type == private.DEVICE_NAME for d in devices)


def register() -> None:
    """Make ``backend="spyre"`` exist and route the default backend's device graphs to it."""
    private.register_dynamo(backend)
    private.route_inductor(_touches_device, backend)
