"""Scratchpads and the pool of intermediates: who lives where, how much is in use at once, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor.exc import InductorError

import spyre_emulator
from spyre_emulator import compiler, placement, settings
from spyre_emulator.placement import Blocks
from spyre_emulator.plan import Plan


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float16).to("spyre")


def planned(function: Callable[..., Any], *inputs: torch.Tensor) -> Plan:
    torch._dynamo.reset()
    torch.compile(function)(*inputs)
    return compiler.plans[-1]


def places(plan: Plan) -> dict[str, tuple[str, int, int | None]]:
    return {
        b.node.name: (p.where, p.bytes, p.address) for b, p in plan.memory.places.items() if b.node.op != "placeholder"
    }


def test_what_program_and_back_end_leave_is_planned() -> None:
    assert placement.usable_scratchpad() == 1625344  # (2 MB - 64 KB) * 0.8, up to a whole stick
    with spyre_emulator.using(lx_bytes=1 << 20, lx_back_end_share=0.5):
        assert placement.usable_scratchpad() == 491520
    with spyre_emulator.using(lx_bytes=0):
        assert placement.usable_scratchpad() == 0


def test_a_chain_stays_on_the_cores_and_takes_two_places_in_turn() -> None:
    plan = planned(lambda x: x.relu().neg().abs().exp(), half(64, 64))
    part = 64 * 128 // 32
    assert places(plan) == {
        "relu": ("lx", part, 0),
        "neg": ("lx", part, part),
        "abs_1": ("lx", part, 0),
        "exp": ("output", 64 * 128, None),
    }
    facts = plan.facts
    assert (facts.scratchpad_buffers, facts.scratchpad_peak, facts.pool_buffers) == (3, 2 * part, 0)
    assert (facts.working_set, facts.spilling_steps) == (2 * part, 0)


def test_what_does_not_fit_a_core_goes_to_the_pool() -> None:
    x = half(64, 64)
    part = 64 * 128 // 32
    with spyre_emulator.using(lx_bytes=(64 << 10) + part, lx_back_end_share=0.0):
        plan = planned(lambda x: x.relu().neg().abs().exp(), x)
    assert places(plan) == {
        "relu": ("lx", part, 0),
        "neg": ("pool", 64 * 128, 0),
        "abs_1": ("lx", part, 0),
        "exp": ("output", 64 * 128, None),
    }
    assert (plan.facts.pool_peak, plan.facts.spilling_steps) == (64 * 128, 4)
    assert "in pool: 256 bytes per core do not fit" in plan.text()


def test_operators_that_cut_the_work_differently_meet_in_the_pool() -> None:
    plan = planned(lambda x, w: (x.relu() @ w).neg(), half(8, 64), half(64, 1024))
    relu = next(p for b, p in plan.memory.places.items() if b.node.name == "relu")
    assert (relu.where, relu.reason) == ("pool", "core division mismatch")
    mm = next(p for b, p in plan.memory.places.items() if b.node.name == "mm")
    assert mm.where == "lx"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.relu().t() @ x, "read by a restickify"),
        (lambda x: x.relu()[2:] + 1, "partial or offset read"),
        (lambda x: x.relu().cos(), "a host operator uses it"),
    ],
)
def test_some_reads_keep_a_value_out_of_the_scratchpad(function: Callable[..., Any], reason: str) -> None:
    plan = planned(function, half(64, 64))
    assert reason in {p.reason for p in plan.memory.places.values()}


def test_the_pool_holds_what_is_live_at_once() -> None:
    size = 64 * 128

    def function(x: torch.Tensor) -> torch.Tensor:
        a, b = x + 1, x + 2  # both live until they meet
        c = a * b
        return c.neg().abs().exp()

    with spyre_emulator.using(lx_planning=False):
        plan = planned(function, half(64, 64))
        assert (plan.facts.pool_buffers, plan.facts.pool_peak, plan.memory.pool_extent) == (5, 3 * size, 3 * size)
    with spyre_emulator.using(lx_planning=False, hbm_pool_planning=False):
        assert planned(function, half(64, 64)).facts.pool_buffers == 0
    with (
        spyre_emulator.using(lx_planning=False, intermediates_pool=3 * size - 1),
        pytest.raises(InductorError, match=rf"HBM intermediate pool peak usage \({3 * size} bytes, 0.00 GB\) exceeds"),
    ):
        planned(function, half(64, 64))
    with spyre_emulator.using(lx_planning=False, intermediates_pool=3 * size):
        planned(function, half(64, 64))


def test_scratchpads_and_traffic_are_in_the_dump_and_in_the_estimate() -> None:
    x = half(64, 64)
    on_chip = json.loads(planned(lambda x: x.relu().neg(), x).json())
    with spyre_emulator.using(lx_planning=False):
        off_chip = json.loads(planned(lambda x: x.relu().neg(), x).json())
    assert [s["place"]["where"] for s in on_chip["steps"]] == ["lx", "output"]
    assert [s["place"]["where"] for s in off_chip["steps"]] == ["pool", "output"]
    assert [s["estimate"]["bytes"] for s in on_chip["steps"]] == [64 * 128] * 2
    assert [s["estimate"]["bytes"] for s in off_chip["steps"]] == [2 * 64 * 128] * 2
    assert off_chip["facts"]["estimated_seconds"] == pytest.approx(2 * on_chip["facts"]["estimated_seconds"])


def test_freed_neighbours_join_and_the_first_block_that_fits_is_taken() -> None:
    blocks = Blocks()
    assert [blocks.take(n, last) for n, last in ((128, 1), (128, 1), (128, 9))] == [0, 128, 256]
    blocks.release(1)
    assert blocks.used == 384
    blocks.release(2)
    assert [blocks.take(256, 9), blocks.take(128, 9)] == [0, 384]
    assert (blocks.peak, blocks.extent) == (512, 512)
    assert Blocks(limit=128).take(129, 1) is None


def test_settings_come_from_the_environment_and_are_checked() -> None:
    found = settings.from_environment(
        {"LX_PLANNING": "0", "HBM_POOL_PLANNING": "0", "DXP_LX_FRAC_AVAIL": "0.4", "SPYRE_EMULATOR_LX_BYTES": "1024",
         "SPYRE_EMULATOR_INTERMEDIATES_POOL": "4096", "SPYRE_EMULATOR_DEVICE_MEMORY": "8192"}
    )  # fmt: skip
    assert (found.lx_planning, found.hbm_pool_planning, found.lx_back_end_share) == (False, False, 0.4)
    assert (found.lx_bytes, found.intermediates_pool, found.device_memory) == (1024, 4096, 8192)
    for name, value in (("DXP_LX_FRAC_AVAIL", "two"), ("DXP_LX_FRAC_AVAIL", "nan"), ("SPYRE_EMULATOR_LX_BYTES", "-1")):
        with pytest.raises(settings.SettingError, match=name):
            settings.from_environment({name: value})
