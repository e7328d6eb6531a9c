"""A model of three lines whose modules and ops can be told apart, and how it is compared."""

from __future__ import annotations

import torch
from torch import nn

from harness import compare
from harness.records import OutputComparison

FLOOR = 2.0**-10 / 12**0.5


class Block(nn.Module):
    """Two projections with ops of its own between them and after them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden)) * 2)


class Model(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList([Block(width), Block(width)])

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(hidden)
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


def models(device: str = "cpu") -> tuple[Model, Model]:
    """A reference and a float16 candidate with the same weights."""
    torch.manual_seed(7)
    reference, candidate = Model().eval(), Model().eval()
    candidate.load_state_dict(reference.state_dict())
    return reference, candidate.half().to(device)


def forward(model: nn.Module) -> torch.Tensor:
    """Run the model on fixed inputs in its own dtype, on its own device."""
    generator = torch.Generator().manual_seed(11)
    parameter = next(model.parameters())
    inputs = torch.randn(2, 5, 64, generator=generator).half()
    result: torch.Tensor = model(inputs.to(parameter.dtype).to(parameter.device))
    return result


def comparison(
    name: str, reference: torch.Tensor, candidate: torch.Tensor, control: torch.Tensor | None
) -> OutputComparison:
    return compare.compare_outputs(
        {name: reference}, {name: candidate}, None if control is None else {name: control}
    ).outputs[0]
