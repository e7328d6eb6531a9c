"""``torch.compile`` for the device: Dynamo backend ``spyre``, routing of the default backend, plan building."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from spyre_emulator import private, recording
from spyre_emulator.plan import Plan

plans: list[Plan] = []
"""Every plan built in this process, oldest first."""


def build(graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[[list[Any]], list[Any]]:
    """The boxed callable of `graph`, which is functional aten with mutations of inputs at its end."""
    plan = Plan(graph, private.is_recompilation())
    plans.append(plan)
    for record in recording.active:
        record.compiled_plans.append(plan)

    def call(inputs: list[Any]) -> list[Any]:
        for record in recording.active:
            record.plans[(plan, plan.binding(inputs))] += 1
        with torch.no_grad():
            return plan.run(inputs)

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
