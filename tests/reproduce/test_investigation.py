"""Five faults of the emulator's catalogue, each to a folder that shows it by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import spyre_emulator
from harness.apart import comparator
from harness.compare import number_format
from harness.investigate import write_reproducer
from harness.localize import Device, Search, first_wrong
from tests.reproduce.test_folder import run

pytestmark = [
    pytest.mark.filterwarnings("ignore::spyre_emulator.FallbackWarning"),
    pytest.mark.filterwarnings("ignore:Backend Spyre does not support int64"),
]
SPYRE = torch.device("spyre", 0)
NOISE = number_format("float16").noise


class Attention(nn.Module):
    """Heads, rotary embedding by slices, a cache written by index, and attention over it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(128)
        self.parts = nn.ModuleList(nn.Linear(128, 128, bias=False) for _ in range(3))
        self.out = nn.Linear(128, 128, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rows, length, _ = hidden.shape
        wide = hidden.float()
        normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(hidden.dtype) * self.norm.weight
        query, key, value = (part(normed).view(rows, length, 4, 32).transpose(1, 2) for part in self.parts)
        query = torch.cat((-query[..., 16:], query[..., :16]), -1) + query
        cache = torch.zeros(rows, 4, length, 32, dtype=key.dtype, device=key.device)
        cache.index_copy_(2, torch.arange(length, device=key.device), key)
        mixed = nn.functional.scaled_dot_product_attention(query, cache, value, is_causal=True)
        return hidden + self.out(mixed.transpose(1, 2).reshape(rows, length, 128))


def search(length: int, *, compiled: bool) -> Search:
    torch.manual_seed(5)
    reference, candidate = Attention().eval(), Attention().eval()
    candidate.load_state_dict(reference.state_dict())
    hidden = torch.randn(1, length, 128).half()

    def forward(model: nn.Module) -> Any:
        parameter = next(model.parameters())
        return model(hidden.to(parameter.dtype).to(parameter.device))

    compile_: Callable[..., Any] | None = _compile if compiled else None
    device = Device(SPYRE, compile_, lambda call: None)
    compare = comparator("dlfloat16", "float16")
    return first_wrong("case", reference, candidate.half().to(SPYRE), forward, compare, device, floor=NOISE)


def _compile(call: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(call, dynamic=False)
    return compiled


@pytest.mark.parametrize(
    ("fault", "length", "compiled", "op", "cause"),
    [
        ("F06", 40, False, "aten.cat.default", "layout"),
        ("F10", 40, False, "aten.index_copy_.default", "op"),
        ("F14", 40, False, "aten._scaled_dot_product_fused_attention_overrideable.default", "op"),
        ("F16", 40, False, "aten.mean.dim", "op"),
        ("F04", 64, True, "aten.transpose.int", "fusion"),
    ],
)
def test_a_fault_is_found_and_reproduced(
    fault: str, length: int, compiled: bool, op: str, cause: str, tmp_path: Path
) -> None:
    with spyre_emulator.faults(fault):
        found = search(length, compiled=compiled)
        assert (found.localization.op and found.localization.op.op, found.localization.cause) == (op, cause)
        assert write_reproducer(tmp_path, found, SPYRE, NOISE, _compile) is None
    script = tmp_path / "reproduce.py"
    assert (run(script, fault), run(script, "")) == (1, 0)
    assert (tmp_path / "inputs.safetensors").stat().st_size < 100_000
