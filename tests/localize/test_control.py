"""The weightless control computes what a cast copy of the reference does, whoever reads a weight."""

from __future__ import annotations

import copy

import torch
from torch import nn

from harness.localize.control import Borrowed, skeleton


class Reaching(nn.Module):
    """Reads a child's weight without calling the child, ties two, and has a parameter and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(32)
        self.embed = nn.Embedding(40, 32)
        self.mix = nn.GRU(32, 32, batch_first=True)
        self.attend = nn.MultiheadAttention(32, 4, batch_first=True)
        self.head = nn.Linear(32, 40, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.tensor(1.25))
        self.register_buffer("shift", torch.linspace(-1, 1, 32))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids) * self.scale + self.shift
        hidden = hidden * self.norm.weight.view(-1)[None].to(self.head.weight.dtype)
        hidden = self.mix(hidden)[0]
        hidden = self.attend(hidden, hidden, hidden)[0]
        result: torch.Tensor = self.head(hidden) + nn.functional.linear(hidden, self.embed.weight)
        return result


def test_the_control_is_the_cast_reference_without_its_memory() -> None:
    torch.manual_seed(3)
    reference = Reaching().eval()
    nn.init.normal_(reference.norm.weight)
    cast = copy.deepcopy(reference).half()
    control = skeleton(reference, cast)
    ids = torch.arange(24).view(2, 12)
    with torch.no_grad():
        torch.testing.assert_close(control(ids), cast(ids), rtol=0, atol=0)
    assert all(isinstance(p, nn.Parameter) and p.dtype is torch.float16 for p in control.parameters())
    assert {type(p) for p in control.parameters()} == {Borrowed}, "no parameter holds values of its own"
    assert control.head.weight is control.embed.weight


def test_a_control_leaves_the_reference_alone() -> None:
    reference = nn.Linear(8, 8)
    before = {name: value.clone() for name, value in reference.state_dict().items()}
    control = skeleton(reference, copy.deepcopy(reference).half())
    with torch.no_grad():
        control(torch.randn(2, 8).half())
    assert {name: torch.equal(value, before[name]) for name, value in reference.state_dict().items()} == {
        "weight": True,
        "bias": True,
    }
