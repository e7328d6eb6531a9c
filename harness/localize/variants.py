"""Each op variant that a model runs, alone on the device against the CPU, with the operands it first had."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from harness.localize.ops import Execution, described, excess, host_copy, repeat, repeatable
from harness.records import OpError

Tensor = torch.Tensor


class Variants(TorchDispatchMode):
    """Runs the first execution of each variant (op x shapes x strides x dtypes) once more, alone."""

    def __init__(self, device: torch.device, floor: float, limit: float, deadline: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._floor = floor
        self._limit = limit
        self._deadline = deadline
        self._seen: set[tuple[Any, ...]] = set()
        self.found: list[OpError] = []
        self.wrong: set[int] = set()
        """Positions in `found` of what is out of proportion or raised."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        execution = Execution(func, args, kwargs or {})
        if self._is_new(execution) and time.monotonic() < self._deadline:
            self._check(execution.mapped(host_copy))
        return func(*args, **(kwargs or {}))

    def _is_new(self, execution: Execution) -> bool:
        func = execution.op
        views = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
        if views or not repeatable(func):
            return False
        tensors = execution.tensors()
        if not any(one.device.type == self._device.type for one in tensors):
            return False
        key = (func, *((one.shape, one.stride(), one.dtype) for one in tensors))
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _check(self, execution: Execution) -> None:
        try:
            measured = repeat(execution, self._device, self._floor * self._limit)
        except (RuntimeError, NotImplementedError, TypeError) as error:
            text = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            self.wrong.add(len(self.found))
            self.found.append(described(execution, None).model_copy(update={"error": text}))
            return
        if excess(measured, self._floor) > self._limit:
            self.wrong.add(len(self.found))
        self.found.append(described(execution, measured))


def check_variants(
    candidate: nn.Module,
    forward: Callable[[nn.Module], object],
    device: torch.device,
    *,
    floor: float,
    limit: float,
    seconds: float,
) -> tuple[tuple[OpError, bool], ...]:
    """Return each op variant of a forward with whether it is wrong alone; views and random ops are left out.

    A forward that raises leaves the variants up to there, the raising one among them.
    """
    mode = Variants(device, floor, limit, time.monotonic() + seconds)
    try:
        with torch.no_grad(), mode:
            forward(candidate)
    except (RuntimeError, NotImplementedError):
        pass
    return tuple((op, index in mode.wrong) for index, op in enumerate(mode.found))
