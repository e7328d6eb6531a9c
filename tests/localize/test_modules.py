from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn

from harness.localize import modules, wrong
from harness.localize.modules import KEPT
from tests.localize.tiny import FLOOR, Block, Model, comparison, forward, models

STRETCHES = [
    "norm",
    "blocks.0.up",
    "blocks.0 (into down)",
    "blocks.0.down",
    "blocks.0 (to its end)",
    "blocks.1.up",
    "blocks.1 (into down)",
    "blocks.1.down",
    "blocks.1 (to its end)",
]


def wrong_names(reference: nn.Module, candidate: nn.Module) -> list[str]:
    taken = modules(reference, candidate, forward, comparison, floor=FLOOR)
    return [error.name for error in wrong(taken.evidence, FLOOR, 8)]


def test_an_honest_float16_candidate_errs_like_the_control_at_every_stretch() -> None:
    reference, candidate = models()
    taken = modules(reference, candidate, forward, comparison, floor=FLOOR)
    assert [error.name for error in taken.evidence.errors] == STRETCHES
    assert all(error.relative_l2 == error.control for error in taken.evidence.errors)
    assert (taken.evidence.forwards, taken.evidence.skipped) == (1, None)
    assert {output.name for output in taken.worst} < {f"module:{name}" for name in STRETCHES}


@pytest.mark.parametrize("name", ["norm.weight", "blocks.0.down.weight", "blocks.1.up.weight"])
def test_a_wrong_weight_is_seen_at_its_own_module_and_nowhere_after_it(name: str) -> None:
    reference, candidate = models()
    with torch.no_grad():
        candidate.get_parameter(name).mul_(1.03)
    assert wrong_names(reference, candidate) == [name.removesuffix(".weight")]


def test_a_wrong_op_between_modules_is_seen_at_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    reference, candidate = models()

    def shifted(self: Block, hidden: torch.Tensor) -> torch.Tensor:
        factor = 2.02 if hidden.dtype == torch.float16 and self is candidate.blocks[1] else 2
        return hidden + self.down(torch.tanh(self.up(hidden)) * factor)

    monkeypatch.setattr(Block, "forward", shifted)
    assert wrong_names(reference, candidate) == ["blocks.1 (into down)"]


def test_a_nan_that_the_control_does_not_make_is_wrong() -> None:
    reference, candidate = models()
    with torch.no_grad():
        candidate.blocks[0].up.bias[3] = float("nan")
    assert wrong_names(reference, candidate) == ["blocks.0.up"]


class Shared(nn.Module):
    """One layer called three times, which gives two tensors each time."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.linear(hidden)
            return hidden * 0.5, hidden + 1

    def __init__(self) -> None:
        super().__init__()
        self.layer = self.Layer()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            hidden, other = self.layer(hidden)
        return hidden + other


def test_a_shared_layer_s_outputs_each_have_a_name_of_their_own() -> None:
    torch.manual_seed(3)
    reference, candidate = Shared().eval(), Shared().eval()
    candidate.load_state_dict(reference.state_dict())
    candidate.half()
    inputs = torch.randn(1, 4, 8)

    def ask(model: nn.Module) -> object:
        return model(inputs.to(next(model.parameters()).dtype))

    taken = modules(reference, candidate, ask, comparison, floor=FLOOR)
    names = [output.name for output in taken.worst]
    assert len(set(names)) == len(names) == KEPT
    linear = {f"module:layer.linear{end}" for end in ("", ", call 1", ", call 2")}
    outputs = {
        f"module:layer (to its end){call}{tensor}"
        for call in ("", ", call 1", ", call 2")
        for tensor in ("", ", tensor 2")
    }
    assert set(names) < linear | outputs | {"module:model (to its end)"}


def test_models_are_left_as_they_were() -> None:
    reference, candidate = models()
    before = forward(candidate)
    modules(reference, candidate, forward, comparison, floor=FLOOR)
    assert torch.equal(before, forward(candidate))
    assert not any("forward" in module.__dict__ for module in [*reference.modules(), *candidate.modules()])


def test_other_modules_on_one_side_end_the_walk_with_a_note() -> None:
    reference, candidate = models()
    candidate.blocks[1] = nn.Identity()
    taken = modules(reference, candidate, forward, comparison, floor=FLOOR)
    assert taken.evidence.skipped is not None
    assert taken.evidence.skipped.startswith("the sides run different modules")
    assert [error.name for error in taken.evidence.errors] == STRETCHES[:5]


def test_no_time_left_ends_the_walk_with_a_note() -> None:
    reference, candidate = models()
    taken = modules(reference, candidate, forward, comparison, floor=FLOOR, seconds=0)
    assert taken.evidence.skipped == "the time ran out at the model: the rest was not taken apart"


def test_an_error_of_the_candidate_is_raised_and_the_other_sides_are_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reference, candidate = models()

    def refuse(hidden: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("Could not run 'aten::tanh'")

    monkeypatch.setattr(candidate.blocks[0].down, "forward", refuse)
    with pytest.raises(NotImplementedError, match="aten::tanh"):
        modules(reference, candidate, forward, comparison, floor=FLOOR)
    assert not any("forward" in module.__dict__ for module in reference.modules())


def test_no_activation_outlives_its_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0
    plain = nn.Linear.forward

    def counted(self: nn.Linear, hidden: torch.Tensor) -> torch.Tensor:
        nonlocal most
        result = plain(self, hidden)
        alive.append(weakref.ref(result))
        most = max(most, sum(reference() is not None for reference in alive))
        return result

    monkeypatch.setattr(nn.Linear, "forward", counted)
    torch.manual_seed(7)
    reference = Model()
    reference.blocks = nn.ModuleList([Block(64) for _ in range(20)])
    candidate = Model()
    candidate.blocks = nn.ModuleList([Block(64) for _ in range(20)])
    candidate.load_state_dict(reference.state_dict())
    modules(reference, candidate.half(), forward, comparison, floor=FLOOR)
    assert len(alive) == 120
    assert most <= 12
