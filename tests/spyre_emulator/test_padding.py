"""NaN in padding lanes: right kernels keep their bits, one that forgets its mask is caught, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import spyre_emulator
from spyre_emulator import dispatch, kernels, padding, private
from spyre_emulator.kernels import Kernel, OpCall

Function = Callable[[torch.Tensor], torch.Tensor]


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float16).to("spyre")


def attend(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], is_causal=True)


CASES: dict[str, tuple[str, Function]] = {
    "sum": ("sum", lambda x: x.sum(-1)),
    "full mean": ("mean", lambda x: x.mean()),
    "mean of the last": ("mean", lambda x: x.mean(-1, keepdim=True)),
    "max": ("amax", lambda x: x.max(-1).values),
    "amin": ("amin", lambda x: x.amin((0, 1))),
    "softmax": ("softmax", lambda x: x.softmax(-1)),
    "log_softmax": ("softmax", lambda x: x.log_softmax(-1)),
    "layer_norm": ("norm", lambda x: F.layer_norm(x, (70,))),
    "rms_norm": ("norm", lambda x: F.rms_norm(x, (70,), x[0])),
    "mm": ("matmul", lambda x: x @ x.t()),
    "bmm": ("matmul", lambda x: x[None] @ x.t()[None]),
    "linear": ("matmul", lambda x: F.linear(x, x, x[:, 0])),
    "attention": ("attention", attend),
    "scale per token": ("norm", lambda x: torch.ops.spyre.quantscalepertokenfp8(x)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_right_kernel_keeps_its_bits_and_one_without_its_mask_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, function = CASES[name]
    x = half(70, 70) if name == "attention" else half(5, 70)
    plain = function(x).cpu()
    with spyre_emulator.using(nan_padding=True):
        assert torch.equal(function(x).cpu(), plain)
        monkeypatch.delitem(padding.MASKS, kind)
        assert function(x).cpu().isnan().any()
    assert torch.equal(function(x).cpu(), plain)


def test_reductions_over_other_dimensions_and_whole_sticks_need_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padding, "MASKS", {})
    with spyre_emulator.using(nan_padding=True):
        assert half(5, 70).amax(0).cpu().isfinite().all()
        assert half(5, 70).softmax(0).cpu().isfinite().all()
        assert (half(5, 128) @ half(128, 70)).cpu().isfinite().all()
        assert half(5, 0).sum().cpu().isfinite().all()


def test_compiled_plans_are_probed_too_and_as_they_were_without_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.softmax(-1) @ x.t()).amax(-1)

    torch._dynamo.reset()
    x = half(5, 70)
    compiled = torch.compile(function, backend="spyre")
    plain = compiled(x).cpu()
    with spyre_emulator.using(nan_padding=True):
        assert torch.equal(compiled(x).cpu(), plain)
        monkeypatch.delitem(padding.MASKS, "amax")
        assert compiled(x).cpu().isnan().any()
    assert torch.equal(compiled(x).cpu(), plain)


@pytest.fixture
def product_of_rows() -> Iterator[Callable[[str | None], Any]]:
    """Defines an operator of somebody else's, whose kernel reads whole sticks with a mask or without."""
    private.define("padding_test", "row_product(Tensor x) -> Tensor")
    op = torch.ops.padding_test.row_product.default

    def register(kind: str | None) -> Any:
        kernels._table.pop(op, None)
        reads = padding.over_dimensions(kind or "nothing")
        kernels.register(Kernel(op, lambda x: x.prod(-1), reads=reads, scalars=False))
        return dispatch.EagerCall(op)

    private.registers_for("padding_test", "Meta")("row_product", lambda x: x.new_empty(x.shape[:-1]))
    yield register
    kernels._table.pop(op, None)


def test_a_kernel_that_somebody_registers_is_caught_without_its_mask(
    product_of_rows: Callable[[str | None], Any],
) -> None:
    x = torch.ones(3, 70, dtype=torch.float16).to("spyre")
    with spyre_emulator.using(nan_padding=True):
        assert product_of_rows("prod")(x).cpu().tolist() == [1.0, 1.0, 1.0]
        assert product_of_rows(None)(x).cpu().isnan().all()
    assert product_of_rows(None)(x).cpu().tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_hook_that_reads_whole_sticks_sees_the_lanes(mode: str) -> None:
    def unmasked(call: OpCall) -> Any:
        correct = call.proceed()
        return correct * 0 + call.sticks(0).amax()

    torch._dynamo.reset()
    x = torch.full((3, 70), 0.5, dtype=torch.float16).to("spyre")
    function: Any = torch.amax
    if mode == "compiled":
        function = torch.compile(torch.amax, backend="spyre")
        function(x)
    kernels.add_hook("aten.amax.default", unmasked)
    try:
        assert function(x).item() == 1.0  # whatever lay there
        with spyre_emulator.using(nan_padding=True):
            assert torch.isnan(function(x)).item()
    finally:
        kernels.remove_hook("aten.amax.default", unmasked)
    assert function(x).item() == 0.5
