"""Targets count what they execute."""

from __future__ import annotations

import pytest
import torch

from harness import targets
from harness.errors import UsageError
from harness.records import OpState, TensorSpec


def test_cpu_counts_ops_and_not_views() -> None:
    target = targets.get("cpu")
    left = torch.ones(2, 3)
    with target.recording() as usage:
        _ = (left @ left.T).relu()
    facts = usage.facts()
    assert (facts.ops_on_device, facts.fallbacks) == (2, 0)
    assert [(use.op, use.state, use.count) for use in facts.ops] == [
        ("aten.mm.default", OpState.SPYRE_ENABLED, 1),
        ("aten.relu.default", OpState.SPYRE_ENABLED, 1),
    ]
    assert facts.replaced is None
    assert facts.ops[0].operands[1] == TensorSpec(shape=(3, 2), strides=(1, 3), dtype="float32")


def test_unknown_device_is_the_users_error() -> None:
    with pytest.raises(UsageError, match=r"target 'abacus': .*Name 'spyre', 'cpu' or an installed torch device"):
        targets.get("abacus")


def test_spyre_counts_native_and_fallback_ops() -> None:
    target = targets.get("spyre")
    device = target.device()
    assert str(device) == "spyre:0"
    left = torch.randn(64, 64).half().to(device)
    with target.recording() as usage:
        product = left @ left
        with pytest.warns(UserWarning, match="cumsum.default is falling back to cpu"):
            _ = torch.cumsum(product, 0)
    facts = usage.facts()
    assert (facts.ops_on_device, facts.fallbacks) == (1, 1)
    states = {use.op.split(".")[1]: use.state for use in facts.ops}
    assert states == {"mm": OpState.SPYRE_ENABLED, "cumsum": OpState.CPU_FALLBACK}
    assert facts.peak_memory is not None
    assert facts.peak_memory >= 2 * 64 * 64
    assert facts.configuration["sencores"] == "32"
    assert facts.replaced == {}


def test_spyre_tells_what_ran_in_an_equivalent_form() -> None:
    target = targets.get("spyre")
    values = torch.randn(64, 64).half().to(target.device())
    with target.recording() as usage:
        _ = torch.nn.functional.silu(torch.nn.functional.layer_norm(values, (64,))) + values
    assert usage.facts().replaced == {"aten.native_layer_norm.default": "decomposed", "aten.silu.default": "custom"}


def test_spyre_compiles_once_per_shape() -> None:
    target = targets.get("spyre")
    layer = torch.nn.Linear(64, 64).half().eval().to(target.device())
    batch = torch.randn(4, 64).half().to(target.device())
    with torch.no_grad(), target.recording() as usage:
        call = target.compile(layer)
        first = call(batch)
        second = call(batch)
    facts = usage.facts().compiled
    assert facts is not None
    assert (facts.graphs, facts.graph_breaks) == (1, 0)
    assert torch.equal(first.cpu(), second.cpu())
    with torch.no_grad():
        assert torch.equal(layer(batch).cpu(), first.cpu())
