"""An ESTIMATE of device time per operator from a roofline. No figure here was measured on a card.

Stated parameters, each a guess or derived from one published number:

* memory 105 GB/s: the cost model's softmax of 4096 x 2048 (33.6 MB in 320 us) implies it
  (torch-spyre:docs/source/compiler/cost_model.md); the card's bandwidth is not public;
* compute 75 TFLOP/s in 16 bit: a quarter of the "more than 300 TOPS" per card, which names no format;
* launch 0 ms for a prepared plan and 4.95 ms where a graph is built on the data path: deserialisation 0.75 ms and
  preparation 4.2 ms of one mean kernel (torch-spyre PR 1728).

The published cost model under-predicts matmul by 22 to 31 %; so does this one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from spyre_emulator import private, settings
from spyre_emulator.constraints import MATMUL, name_of
from spyre_emulator.layout import device_bytes

BYTES_PER_SECOND = 105e9
FLOPS_PER_SECOND = 75e12
GRAPH_LAUNCH_SECONDS = 4.95e-3


class Estimate(NamedTuple):
    """Estimated cost of one operator on the whole card."""

    flops: int
    bytes: int
    """Device memory traffic: operands and results once, padding lanes included; in a plan those that are not in the
    scratchpads, and twice what is restickified."""
    seconds: float
    """max(compute, memory) plus the launch."""


def _shape(value: torch.Tensor) -> tuple[int, ...]:
    return tuple(private.size_hint(s) for s in value.shape)


def estimate(op: Any, operands: list[Any], results: list[Any], traffic: int | None = None) -> Estimate:
    """The estimate for `op` on (fake) values; `traffic` as a plan knows it, or that of fresh layouts."""
    tensors = [v for v in (*operands, *results) if isinstance(v, torch.Tensor)]
    if traffic is None:
        traffic = sum(device_bytes(_shape(v), v.dtype) for v in tensors)
    outputs = [math.prod(_shape(v)) for v in results if isinstance(v, torch.Tensor)]
    flops = sum(outputs)
    if name_of(op) in MATMUL and operands:
        inner = next((_shape(v)[-1] for v in operands[-2:] if isinstance(v, torch.Tensor)), 1)
        flops *= 2 * inner
    share = settings.current.sencores / 32
    busy = max(flops / (FLOPS_PER_SECOND * share), traffic / BYTES_PER_SECOND)
    launch = GRAPH_LAUNCH_SECONDS if settings.current.launch == "graph" else 0.0
    return Estimate(flops, traffic, busy + launch)
