"""Estimated times and traffic against the published cost figures; device properties."""

from __future__ import annotations

from typing import Any

import torch

from spyre_emulator import private, settings
from spyre_emulator.estimate import estimate
from spyre_emulator.fidelity.figures import Figure, unavailable, within
from spyre_emulator.plan import Plan

COST_MODEL = "torch-spyre:docs/source/compiler/cost_model.md"
GRAPH_PATH = "torch-spyre PR #1728"
aten = private.aten
NOT_TIMED = "times of the real host software; the emulator estimates device time only (docs/fidelity.md, Not modelled)"


def _softmax_estimate() -> Any:
    x = torch.empty(4096, 2048, dtype=torch.float16, device="meta")
    return estimate(aten._softmax.default, [x], [x])


def _launch_of_a_mean() -> float:
    """Milliseconds of deserialisation and preparation that a graph on the data path adds."""
    x, y = torch.empty(64, 64, device="meta"), torch.empty(64, device="meta")
    seconds = []
    for launch in ("graph", "prepared"):
        with settings.using(launch=launch):
            seconds.append(float(estimate(aten.mean.dim, [x], [y]).seconds))
    return (seconds[0] - seconds[1]) * 1e3


def _transposed_over_plain_matmul() -> float:
    """Estimated time of ``x @ A.T`` over that of ``x @ A``: what restickifying the weight costs."""
    shapes = ((1, 4096), (4096, 51200))
    plain = Plan(private.traced(lambda x, a: (x @ a,), shapes, torch.float16))
    transposed = Plan(private.traced(lambda x, a: (x @ a.t(),), (shapes[0], shapes[1][::-1]), torch.float16))
    return transposed.facts.estimated_seconds / plain.facts.estimated_seconds


def figures() -> list[Figure]:
    """Every figure of this part."""
    topic = "softmax 4096 x 2048, fp16"
    return [
        within("cost/softmax/bytes", topic, "HBM traffic, MB", 33.6, 1.05,
               lambda: float(_softmax_estimate().bytes) / 1e6, COST_MODEL, origin="estimated"),
        within("cost/softmax/time", topic, "time, us", 320.0, 1.25,
               lambda: float(_softmax_estimate().seconds) * 1e6, COST_MODEL, origin="fitted"),
        within("cost/launch", "one mean kernel on the graph path", "deserialisation and preparation, ms", 4.95, 1.05,
               _launch_of_a_mean, GRAPH_PATH, origin="fitted"),
        within("cost/transposed-weight", "x @ A.T against x @ A, [1, 4096] and [4096, 51200], fp16", "time, ratio", 3.5,
               1.25, _transposed_over_plain_matmul, "torch-spyre#3512"),
        unavailable("cost/qwen3-0.6b", "Qwen3-0.6B, April 2026", "first compile; fill step; expansion step",
                    "70-210 s; 4.6 s; 20 s", "hf-adapters", NOT_TIMED),
        unavailable("cost/dma-graph", "removal of the first DMA graph", "average improvement", "45 %",
                    "torch-spyre#53", NOT_TIMED),
        _exact("device/cores", "cores", 32.0, lambda: float(_properties().multi_processor_count)),
        _exact("device/memory", "device memory, GB", 128.0, lambda: float(_properties().total_memory >> 30)),
    ]  # fmt: skip


def _properties() -> Any:
    with settings.using(sencores=32):
        return torch.spyre.get_device_properties()  # type: ignore[attr-defined]


def _exact(identity: str, quantity: str, published: float, measure: Any) -> Figure:
    return Figure(
        id=identity, topic="device properties", quantity=quantity, published=published, origin="by construction",
        source="torch-spyre:docs; IBM product pages", measure=measure,
    )  # fmt: skip
