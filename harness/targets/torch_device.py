"""Any torch device by its name; `cpu` among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.records import DeviceUse, OpState, OpUse, TensorSpec


class TorchTarget:
    """A device that torch itself knows."""

    def __init__(self, name: str) -> None:
        self.name = name

    def unavailable(self) -> str | None:
        """Why the device cannot be used; None when it can."""
        try:
            torch.empty(1, device=self.name)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            return f"torch cannot use it here ({str(error).splitlines()[0]})"
        return None

    def device(self) -> torch.device:
        """The torch device."""
        return torch.device(self.name)

    def compile(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call`` through the default backend of ``torch.compile`` with static shapes."""
        compiled: Callable[..., Any] = torch.compile(call, dynamic=False)
        return compiled

    @contextmanager
    def recording(self) -> Iterator[DispatchUsage]:
        """Counts ops by their tensors' device."""
        usage = DispatchUsage(self.device().type)
        with usage:
            yield usage


class DispatchUsage(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the ops that torch dispatches, by whether an operand lives on the device."""

    def __init__(self, device_type: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device_type = device_type
        self._counts: Counter[tuple[str, OpState, tuple[TensorSpec, ...]]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [value for value in (*args, result) if isinstance(value, torch.Tensor)]
        on_device = any(tensor.device.type == self._device_type for tensor in tensors)
        is_view = any(ret.alias_info is not None for ret in func._schema.returns)
        if tensors and not is_view:
            state = OpState.SPYRE_ENABLED if on_device else OpState.CPU_FALLBACK
            operands = tuple(tensor_spec(value) for value in args if isinstance(value, torch.Tensor))
            self._counts[(str(func), state, operands)] += 1
        return result

    def facts(self) -> DeviceUse:
        """Counts so far. ``spyre_enabled`` reads: ran on the device under test."""
        uses = tuple(
            OpUse(op=op, state=state, count=count, operands=operands)
            for (op, state, operands), count in sorted(self._counts.items(), key=lambda item: str(item[0]))
        )
        on_device = sum(use.count for use in uses if use.state is OpState.SPYRE_ENABLED)
        return DeviceUse(ops_on_device=on_device, fallbacks=sum(use.count for use in uses) - on_device, ops=uses)


def tensor_spec(tensor: torch.Tensor) -> TensorSpec:
    """Geometry of a tensor."""
    return TensorSpec(
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        dtype=str(tensor.dtype).removeprefix("torch."),
    )
