"""``torch.accelerator`` for the device: synchronisation, memory statistics, device index, capability."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from spyre_emulator import private, settings
from spyre_emulator.dispatch import check_device
from spyre_emulator.dtypes import FORMATS
from spyre_emulator.memory import ACCOUNTING


def check_index(index: int) -> None:
    """RuntimeError unless `index` is that of the one card; -1 stands for the current one."""
    if index >= 0:
        check_device(torch.device(private.DEVICE_NAME, index))


def synchronize(index: int) -> None:
    """Launches end before the call returns, so there is nothing to wait for."""
    check_index(index)


def set_index(index: int) -> None:
    """Accepts the one card, refuses others."""
    check_index(index)


def exchange_index(index: int) -> int:
    """The index so far, which is 0; `index` has to be that too."""
    check_index(index)
    return 0


def statistics(index: int) -> dict[str, Any]:
    """Counters of the allocator, nested as PyTorch flattens them: bytes in use, at the peak; allocations."""
    check_index(index)
    in_use = {"all": {"current": ACCOUNTING.allocated, "peak": ACCOUNTING.peak}}
    return {
        "allocated_bytes": in_use,
        "reserved_bytes": in_use,
        "allocation": {"all": {"allocated": ACCOUNTING.allocations}},
    }


def reset_peak(index: int) -> None:
    """Forget the peak."""
    check_index(index)
    ACCOUNTING.peak = ACCOUNTING.allocated


def reset_accumulated(index: int) -> None:
    """Count allocations from here."""
    check_index(index)
    ACCOUNTING.allocations = 0


def memory_info(index: int) -> tuple[int, int]:
    """(free, total) bytes."""
    check_index(index)
    total = settings.current.device_memory
    return total - ACCOUNTING.allocated, total


def capability(index: int) -> dict[str, Any]:
    """The dtypes that the device holds (csrc/types_mapping.h)."""
    check_index(index)
    return {"supported_dtypes": set(FORMATS)}


def nothing_cached() -> None:
    """Freed memory is free: there is no cache to empty, of the device's or of pinned memory."""


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "synchronizeDevice": synchronize,
    "setDeviceIndex": set_index,
    "exchangeDevice": exchange_index,
    "maybeExchangeDevice": exchange_index,
    "isAllocatorInitialized": lambda: True,
    "getDeviceStats": statistics,
    "resetPeakStats": reset_peak,
    "resetAccumulatedStats": reset_accumulated,
    "getMemoryInfo": memory_info,
    "getDeviceCapability": capability,
    "emptyCache": nothing_cached,
    "emptyHostCache": nothing_cached,
}
"""What serves ``torch._C._accelerator_...``."""


def register() -> None:
    """Let ``torch.accelerator`` work."""
    private.patch_accelerator(FUNCTIONS)
