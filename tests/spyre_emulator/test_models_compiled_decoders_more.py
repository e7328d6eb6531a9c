"""Stock models under torch.compile: one graph, and the bits of eager mode."""

import pytest
import torch

import spyre_emulator
from tests.spyre_emulator import zoo


@pytest.mark.parametrize("name", ["phi3", "gemma2", "olmo2", "gpt2", "gpt_neox"])
def test_one_graph_and_the_bits_of_eager_mode(name):
    given, device = zoo.inputs(name), zoo.on_device(zoo.build(name, layers=1))
    eager = zoo.forward(device, given)
    with spyre_emulator.record() as recording:
        result = zoo.forward(zoo.compiled(device), given)
    assert torch.equal(result, eager)
    facts = recording.compiled
    assert (facts.graphs, facts.graph_breaks, facts.recompiles) == (1, 0, 0)
    assert recording.ops_on_device == facts.native_steps
    assert recording.fallbacks == facts.fallback_steps
