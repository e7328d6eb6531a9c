"""Recordings count executed operators with their states, in eager and in compiled mode."""

import torch

import spyre_emulator
from spyre_emulator import OpVariant, private


def half(*shape):
    return torch.randn(*shape, dtype=torch.float16).to("spyre")


def test_eager_counts_without_views_and_copies():
    x = half(2, 64)
    with spyre_emulator.record() as recording:
        for _ in range(2):
            torch.cos(x.t().contiguous())
        (x + x).cpu()
    square = ((2, 64), (64, 1), "float16")
    assert recording.ops == {
        OpVariant("aten.cos.default", "cpu_fallback", (((64, 2), (2, 1), "float16"),)): 2,
        OpVariant("aten.add.Tensor", "spyre_enabled", (square, square)): 1,
    }
    assert (recording.ops_on_device, recording.fallbacks) == (1, 2)


def test_compiled_counts_steps_times_runs():
    torch._dynamo.reset()
    weight = half(64, 64)

    def step(x):
        return torch.nn.functional.gelu(x @ weight).cos()

    compiled = torch.compile(step)
    with spyre_emulator.record() as first:
        compiled(half(2, 64))
    with spyre_emulator.record() as second:
        for _ in range(3):
            compiled(half(2, 64))
    assert (first.ops_on_device, first.fallbacks) == (2, 1)
    assert (second.ops_on_device, second.fallbacks) == (6, 3)
    assert {(v.op, v.state): n for v, n in second.ops.items()} == {
        ("aten.mm.default", "spyre_enabled"): 3,
        ("aten.gelu.default", "spyre_enabled"): 3,
        ("aten.cos.default", "cpu_fallback"): 3,
    }
    facts = first.compiled
    assert (facts.graphs, facts.graph_breaks, facts.recompiles, facts.plan_steps) == (1, 0, 0, 3)
    assert (facts.native_steps, facts.fallback_steps, facts.view_steps, facts.restickifies) == (2, 1, 0, 0)
    assert facts.seconds > 0
    assert second.compiled.seconds == 0


def test_a_second_shape_recompiles_and_symbolic_sizes_are_counted_as_they_ran():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x + 1)
    with spyre_emulator.record() as recording:
        for rows in (2, 3, 4):
            assert compiled(half(rows, 64)).shape == (rows, 64)
    assert recording.compiled.recompiles == 1
    assert recording.compiled.graphs == 2
    assert sorted(v.operands[0][0] for v in recording.ops) == [(2, 64), (3, 64), (4, 64)]
    assert recording.ops_on_device == 3


def test_a_graph_break_is_counted():
    torch._dynamo.reset()

    def step(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    with spyre_emulator.record() as recording:
        torch.compile(step)(half(2, 64))
    assert recording.compiled.graph_breaks == 1
    assert recording.compiled.graphs == 2


def test_refused_arguments_are_failed_variants():
    x = half(2, 256)
    with spyre_emulator.record() as recording:
        torch._dynamo.reset()
        torch.compile(lambda x: x.topk(130)[0])(x)
    assert [v.state for v in recording.ops] == ["spyre_failed"]


def test_configuration_names_what_acts_on_results():
    with spyre_emulator.using(rounding="truncate", sencores=16):
        configuration = spyre_emulator.configuration()
    assert configuration["rounding"] == "truncate"
    assert configuration["sencores"] == "16"
    assert configuration["coverage"] == "permissive"
    assert configuration["accumulation.matmul"] == "fp32"
    assert configuration["accumulation.mean"] == "dl16/8 lanes/truncate"
    assert configuration["rounding_kernel"] in ("c", "torch")
    assert configuration["faults"] == ""
    assert all(isinstance(v, str) for v in configuration.values())


def test_kernels_that_run_between_graph_breaks_are_not_traced():
    def f(x):
        y = x + 1
        torch._dynamo.graph_break()
        return torch.sort(y.cpu().to("spyre"))[0] * y.sum().item()

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.compile(f)(torch.ones(2, 3).half().to("spyre"))
    assert private.graph_breaks() == 2
