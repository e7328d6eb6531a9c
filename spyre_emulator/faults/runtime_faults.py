"""F31 to F36: memory planning and the runtime; most act on the graph of a compiled plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from spyre_emulator import kernels, operators, private
from spyre_emulator.division import LX_FRONT_END
from spyre_emulator.faults.crashes import segmentation_fault
from spyre_emulator.faults.fault import AtGraph, AtReceive, Fault
from spyre_emulator.layout import device_bytes

aten = private.aten
Graph = torch.fx.GraphModule
Node = torch.fx.Node
GROUP = "memory planning / runtime"
_OFFSET_VIEWS = (aten.slice.Tensor, aten.select.int)
_CACHE_WRITES = (aten.index_copy.default, aten.index_copy_.default, aten.index_put.default, aten.index_put_.default)


def _value(node: Node) -> Any:
    return node.meta.get("val")


def _computes(node: Node) -> bool:
    """Whether `node` is a device operator with one tensor as its result in memory of its own."""
    value = _value(node)
    if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.device.type != private.DEVICE_NAME:
        return False
    target: Any = node.target
    return isinstance(target, private.OpOverload) and not kernels.lookup(target).is_view


def _falls_back(node: Node) -> bool:
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, private.OpOverload):
        return False
    return operators.state_of(target, compiled=True) == operators.FALLBACK


def _writes_cache(node: Node) -> bool:
    return node.op == "call_function" and node.target in _CACHE_WRITES


def _same_buffer_size(a: Node, b: Node) -> bool:
    return bool(_value(a).shape == _value(b).shape and _value(a).dtype == _value(b).dtype)


def _reuse_across(graph: Graph, boundary: Callable[[Node], bool]) -> bool:
    """Give the first fitting result behind a boundary the memory of a result that is still needed; whether any was."""
    nodes = list(graph.graph.nodes)
    order = {n: i for i, n in enumerate(nodes)}
    for edge in filter(boundary, nodes):
        earlier = [n for n in nodes[: order[edge]] if _computes(n)]
        later = [n for n in nodes[order[edge] + 1 :] if _computes(n)]
        for victim in earlier:
            for writer in later:
                readers = [u for u in victim.users if order[u] > order[writer]]
                if readers and _same_buffer_size(victim, writer):
                    for reader in readers:
                        reader.replace_input_with(victim, writer)
                    return True
    return False


def _across_bundles(graph: Graph) -> bool:
    return _reuse_across(graph, _falls_back)


def _across_cache_write(graph: Graph) -> bool:
    if os.environ.get("HBM_POOL_PLANNING") == "0":
        return False
    return _reuse_across(graph, _writes_cache)


def _has_offset(view: Node) -> bool:
    if view.target not in _OFFSET_VIEWS:
        return False
    position = 2 if len(view.args) > 2 else None
    return position is not None and isinstance(view.args[2], int) and view.args[2] != 0


def _alias_overwritten(graph: Graph) -> bool:
    """Let the memory of a result be reused although a view with an offset still needs it; whether any was."""
    nodes = list(graph.graph.nodes)
    order = {n: i for i, n in enumerate(nodes)}
    for alias in filter(_has_offset, nodes):
        base = alias.args[0]
        if not isinstance(base, Node) or not _computes(base):
            continue
        freed = max(order[u] for u in base.users)
        for writer in nodes[freed + 1 :]:
            readers = [u for u in alias.users if order[u] > order[writer]]
            if _computes(writer) and _same_buffer_size(base, writer) and readers:
                with graph.graph.inserting_after(writer):
                    wrong: Any = graph.graph.call_function(alias.target, (writer, *alias.args[1:]), alias.kwargs)
                wrong.meta = dict(alias.meta)
                for reader in readers:
                    reader.replace_input_with(alias, wrong)
                return True
    return False


def _fallback_of_pinned(graph: Graph) -> bool:
    for node in filter(_falls_back, graph.graph.nodes):
        for operand in filter(_computes, node.all_input_nodes):
            value = _value(operand)
            if device_bytes(tuple(map(int, value.shape)), value.dtype) <= LX_FRONT_END:
                raise RuntimeError(f"{node.target} falls back to cpu and reads {operand.name}, which is pinned to LX")
    return False


def _derives_from_angle(node: Any, depth: int = 6) -> bool:
    if not isinstance(node, Node) or depth == 0:
        return False
    if node.target in (aten.cos.default, aten.sin.default):
        return True
    return any(_derives_from_angle(a, depth - 1) for a in node.all_input_nodes)


def _cache_leaves_graph(graph: Graph) -> bool:
    output = next(n for n in graph.graph.nodes if n.op == "output")
    if any(_derives_from_angle(value) for value in output.args[0]):
        segmentation_fault()
    return False


def _unchanged(before: torch.Tensor, received: torch.Tensor) -> torch.Tensor:
    return before


FAULTS = (
    Fault(
        "F31", "buffer aliased across bundles",
        "compiled graph with a CPU fallback between two bundles, a result of the first needed late in the second",
        "the result is overwritten by one of the same size", "silent", "torch-spyre#3775",
        (AtGraph(_across_bundles),), GROUP,
        assumed="that bundles end at CPU fallbacks; the report has page faults too, wrong data is modelled",
    ),
    Fault(
        "F32", "pool planning of compiled decode",
        "compiled graph that writes a cache by index, a result needed across the write; not with HBM_POOL_PLANNING=0",
        "the result is overwritten by one of the same size", "silent", "torch-spyre#3980, torch-spyre#3707",
        (AtGraph(_across_cache_write),), GROUP, assumed="the cache write as the place where planning errs",
    ),
    Fault(
        "F33", "alias within a bundle",
        "compiled graph where a view with an offset is needed after the last direct use of its base",
        "the memory of the base is reused too early", "silent", "torch-spyre PR #4022",
        (AtGraph(_alias_overwritten),), GROUP,
    ),
    Fault(
        "F34", "fallback reads an LX-pinned buffer",
        "compiled graph with a CPU fallback on a result that fits the scratchpad (1638.4 KB)", "RuntimeError at launch",
        "crash", "torch-spyre PR #2496", (AtGraph(_fallback_of_pinned),), GROUP, assumed="the error's text",
    ),
    Fault(
        "F35", "received data not visible on the host", "recv, broadcast", "the tensor keeps its old values", "silent",
        "torch-spyre#2722", (AtReceive(("recv", "broadcast"), _unchanged),), GROUP,
    ),
    Fault(
        "F36", "RoPE cache built in a traced forward", "compiled graph that returns a tensor computed from cos or sin",
        "SIGSEGV", "crash", "spyre-inference", (AtGraph(_cache_leaves_graph),), GROUP,
    ),
)  # fmt: skip
