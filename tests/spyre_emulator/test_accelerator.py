"""torch.accelerator: what PyTorch leaves to C++ backends works for this one, and only index 0 exists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import spyre_emulator

acc = torch.accelerator


def test_there_is_one_synchronous_card() -> None:
    assert (str(acc.current_accelerator()), acc.device_count(), acc.current_device_index()) == ("spyre", 1, 0)
    acc.synchronize()
    acc.synchronize("spyre:0")
    acc.set_device_index(0)
    with acc.device_index(0):
        assert acc.current_device_index() == 0
    assert acc.current_stream().query()
    acc.set_stream(acc.current_stream())


@pytest.mark.parametrize(
    "call", [acc.synchronize, acc.set_device_index, acc.memory_allocated, acc.get_memory_info, acc.memory_stats]
)
def test_another_index_is_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises(RuntimeError, match="invalid device spyre:1: a process owns one Spyre card"):
        call(1)


def test_memory_is_what_the_device_counts() -> None:
    before = acc.memory_allocated()
    x = torch.zeros(3, 65, dtype=torch.float16, device="spyre")
    assert acc.memory_allocated() - before == 3 * 2 * 128 == acc.memory_reserved() - before
    acc.reset_peak_memory_stats()
    y = torch.zeros(64, dtype=torch.float16, device="spyre")
    peak = acc.max_memory_allocated()
    del x, y
    assert acc.max_memory_allocated() == peak == acc.max_memory_reserved() == before + 3 * 2 * 128 + 128
    assert acc.memory_allocated() == before == torch.spyre.memory_allocated()
    with spyre_emulator.using(device_memory=1 << 40):
        assert acc.get_memory_info() == ((1 << 40) - before, 1 << 40)
    acc.reset_accumulated_memory_stats()
    assert acc.memory_stats() == {
        "allocated_bytes.all.current": before,
        "allocated_bytes.all.peak": peak,
        "allocation.all.allocated": 0,
        "reserved_bytes.all.current": before,
        "reserved_bytes.all.peak": peak,
    }


def test_caches_are_empty_and_dtypes_known() -> None:
    acc.empty_cache()
    acc.empty_host_cache()
    assert torch.bfloat16 in acc.get_device_capability()["supported_dtypes"]
    assert torch.float64 not in acc.get_device_capability()["supported_dtypes"]


def test_synchronize_inside_a_compiled_function() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        acc.synchronize()
        return y * 2

    torch._dynamo.reset()
    x = torch.ones(3, dtype=torch.float16, device="spyre")
    assert torch.compile(function)(x).cpu().tolist() == [4.0] * 3
