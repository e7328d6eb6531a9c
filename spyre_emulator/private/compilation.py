"""Dynamo, AOT and Inductor: backends, tracing, counters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from spyre_emulator.private.contract import DEVICE_NAME


def route_inductor(wants: Callable[[Any, Any], bool], backend: Callable[..., Any]) -> None:
    """Send graphs of the default ``torch.compile`` backend for which ``wants(graph, inputs)`` to `backend`."""
    wrapper: Any = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    def call(self: Any, graph: Any, inputs: Any, **kwargs: Any) -> Any:
        if wants(graph, inputs):
            return backend(graph, inputs)
        return original(self, graph, inputs, **kwargs)

    wrapper.__call__ = call


def graph_breaks() -> int:
    """Dynamo's process-wide count of graph breaks; zero while Dynamo was never imported."""
    utils = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else sum(utils.counters["graph_break"].values())


def is_recompilation() -> bool:
    """Whether the graph being compiled replaces an earlier one of the same code whose guards failed."""
    compile_id = torch._guards.CompileContext.current_compile_id()
    return compile_id is not None and (compile_id.frame_compile_id or 0) > 0


def aot(graph: Any, example_inputs: Any, build: Callable[..., Any]) -> Any:
    """`graph` traced to aten operators without decomposing them further, compiled by `build`."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(
        fw_compiler=build, inference_compiler=build, decompositions={}, keep_inference_input_mutations=True
    )(graph, example_inputs)


def register_dynamo(backend: Callable[..., Any]) -> None:
    """Register `backend` under the device's name, and the device's interface with Dynamo."""
    from torch._dynamo import register_backend
    from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device

    class SpyreInterface(DeviceInterface):  # type: ignore[misc, unused-ignore]
        """What Dynamo asks about the device."""

        class Event:
            """No events: launches end before the call returns."""

        class device:  # noqa: N801 - Dynamo looks for this name
            """Context manager that selects the one card."""

            def __init__(self, device: Any) -> None: ...

            def __enter__(self) -> None: ...

            def __exit__(self, *_: object) -> None: ...

        @staticmethod
        def is_available() -> bool:
            return True

        @staticmethod
        def current_device() -> int:
            return 0

        @staticmethod
        def set_device(device: Any) -> None: ...

        @staticmethod
        def device_count() -> int:
            return 1

        @staticmethod
        def synchronize(device: Any = None) -> None: ...

        @staticmethod
        def get_compute_capability(device: Any = None) -> int:
            return 0

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return True

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return 0

    # Kernels run between graph breaks too, where Dynamo would trace their Python and count its breaks as the model's.
    torch._dynamo.trace_rules.add(__name__.partition(".")[0])
    register_interface_for_device(DEVICE_NAME, SpyreInterface)
    register_backend(backend, name=DEVICE_NAME)


def inductor_error(inner: Exception) -> Exception:
    """`inner` as the compiler of the published stack raises it."""
    from torch._inductor.exc import InductorError

    return InductorError(inner, None)


def is_fake(value: Any) -> bool:
    """Whether `value` is a tensor that tracing made, without contents."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(value, module.FakeTensor)


def size_hint(dim: Any) -> int:
    """The size that `dim` had when it was traced, without guarding on it."""
    return int(dim.node.hint) if isinstance(dim, torch.SymInt) else int(dim)


def drop_synchronization(graph: Any) -> None:
    """Take the waits out of `graph` that Dynamo wraps as ``control_deps``: launches end before the next one begins."""
    for node in [n for n in graph.graph.nodes if str(n.target) == "control_deps"]:
        body = getattr(graph, node.args[1].target)
        calls = [n for n in body.graph.nodes if n.op == "call_function"]
        if any(getattr(n.target, "namespace", None) != "streams" for n in calls):
            continue
        passed = node.args[2:]
        for user in list(node.users):  # each takes one of (result of the wait, *passed)
            user.replace_all_uses_with(passed[user.args[1] - 1])
            graph.graph.erase_node(user)
        holder = node.args[1]
        graph.graph.erase_node(node)
        if not holder.users:
            graph.graph.erase_node(holder)
    for node in [n for n in graph.graph.nodes if getattr(n.target, "namespace", None) == "streams" and not n.users]:
        graph.graph.erase_node(node)


def traced(function: Callable[..., Any], shapes: Sequence[Sequence[int]], dtype: torch.dtype) -> Any:
    """The graph of `function`, which returns a tuple, on device tensors of `shapes` that are never allocated."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode():
        inputs = [torch.empty(shape, dtype=dtype, device=DEVICE_NAME) for shape in shapes]
        return make_fx(function)(*inputs)
