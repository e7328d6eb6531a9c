"""Layout propagation: the assignment is the cheapest one, and changes no number."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import spyre_emulator
from spyre_emulator import compiler, propagation
from spyre_emulator.plan import Plan
from spyre_emulator.propagation import Propagation
from spyre_emulator.steps import kind_of, role_of


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float16).to("spyre")


def planned(function: Callable[..., Any], *inputs: torch.Tensor) -> Plan:
    torch._dynamo.reset()
    result = torch.compile(function)(*inputs)
    assert torch.equal(result.cpu(), function(*inputs).cpu())
    return compiler.plans[-1]


def sticked(plan: Plan) -> dict[str, int | None]:
    return {
        n.name: plan.layouts.sources[n][0].view.dimension(plan.layouts.stick_of(n))
        for n in plan.layouts.requirements
    }  # fmt: skip


def test_agnostic_operators_follow_a_transposed_operand() -> None:
    plan = planned(lambda x: torch.relu(x.t() + 1) * 2, half(64, 128))
    assert sticked(plan) == {"add": 0, "relu": 0, "mul": 0}
    assert plan.facts.restickifies == 0


def test_two_small_operands_are_moved_rather_than_a_large_one_that_comes_later() -> None:
    def function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return (x.t() + y).sum(0) + z

    plan = planned(function, half(128, 64), half(64, 128), half(128))
    assert plan.facts.restickifies == 1
    # x.t() is sticked along dimension 0, y along dimension 1: one of the two has to move, then the sum keeps z's stick
    assert sticked(plan)["sum_1"] == 0


def test_a_stick_is_chosen_for_all_that_follows() -> None:
    def function(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return ((x + a.t()) * b.t()) - c.t()

    plan = planned(function, half(128, 64), half(64, 128), half(64, 128), half(64, 128))
    assert sticked(plan) == {"add": 0, "mul": 0, "sub": 0}
    (moved,) = plan.layouts.restickifies.values()
    assert [(r.shape, r.have, r.need) for r in moved] == [((128, 64), 1, 0)]


def test_a_reduction_over_the_stick_gives_one_element_per_stick_and_broadcasts_back_for_nothing() -> None:
    plan = planned(lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True)), half(3, 64))
    assert sticked(plan) == {"mul": 1, "mean": None, "rsqrt": None, "mul_1": 1}
    assert (plan.facts.restickifies, plan.facts.padded_bytes) == (0, 2 * (3 * 128 - 3 * 2))


def test_a_view_that_begins_inside_a_stick_is_rearranged() -> None:
    plan = planned(lambda x: x[:, 32:] + 1, half(3, 128))
    (moved,) = plan.layouts.restickifies.values()
    assert [(r.shape, r.have, r.need, r.whole) for r in moved] == [((3, 96), 1, 1, False)]


def test_padding_decides_between_arrangements_that_move_as_much() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y.t()

    plan = planned(function, half(128, 2), half(2, 128))  # either operand can move; sticks of 128 waste nothing
    assert sticked(plan) == {"add": 0}


def test_what_the_device_cannot_move_is_moved_only_where_nothing_else_is_left() -> None:
    with spyre_emulator.using(coverage="published"):
        with pytest.raises(Exception, match=r"ReStickifyOpHBM on DataFormats\.IEEE_FP32"):
            planned(lambda x, y: x + y.t(), half(64, 64).float(), half(64, 64).float())
        torch._dynamo.reset()


def exhaustive(search: Propagation) -> int:
    """The lowest cost among all combinations of the candidates."""
    buffers = list(search.candidates)
    nodes = [n for n in search.nodes if n in search.operands]
    return min(
        sum(search._cost(n, dict(zip(buffers, sticks, strict=True))) for n in nodes)
        for sticks in itertools.product(*search.candidates.values())
    )


def chain(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    a = x + y.t()
    b = (a * y.t()).amax(0, keepdim=True) + x
    c = torch.cat([a, b.t().clone().t()], 1) @ w
    return torch.softmax(c.t(), 0) + c.t().sum(0)


@pytest.mark.parametrize("width", [1, propagation.BEAM_WIDTH])
def test_the_beam_finds_the_cheapest_assignment(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(chain, half(70, 40), half(40, 70), half(80, 65))
    monkeypatch.setattr(propagation, "BEAM_WIDTH", width)
    nodes = list(plan.graph.graph.nodes)
    search = Propagation(nodes, lambda n: role_of(n, kind_of(n) if n.op == "call_function" else None))
    found = search.run().cost
    best = exhaustive(search)
    assert sum(len(c) > 1 for c in search.candidates.values()) >= 4
    assert found == best if width > 1 else found >= best


def test_zero_length_values_cost_nothing() -> None:
    plan = planned(lambda x: (x.t() + 1).t() * 2, half(3, 64)[:0])
    assert (plan.facts.padded_bytes, plan.facts.restickifies) == (0, 0)
