"""Plans: source, dumps, restickify counts, in-place cache updates, launch modes, estimates."""

import json

import pytest
import torch

import spyre_emulator
from spyre_emulator import compiler, estimate
from spyre_emulator.cores import cores_for

aten = torch.ops.aten


def half(*shape):
    return torch.randn(*shape, dtype=torch.float16).to("spyre")


def planned(function, *inputs):
    torch._dynamo.reset()
    result = torch.compile(function)(*inputs)
    return compiler.plans[-1], result


def test_the_source_is_flat_and_frees_at_the_last_use():
    plan, _ = planned(lambda x, w: torch.relu(x @ w), half(2, 64), half(64, 64))
    assert plan.source.splitlines() == [
        "def run(a):",
        "  v0 = readable(a[0])",
        "  v1 = weight(a[1])",
        "  v2 = f2(v0, v1)",
        "  v0 = v1 = None",
        "  v3 = f3(v2)",
        "  v2 = None",
        "  return [wrap(v3, t3)]",
    ]


def test_dumps_in_text_and_json():
    plan, _ = planned(lambda x, w: torch.nn.functional.linear(x, w).cos(), half(3, 70), half(64, 70))
    described = json.loads(plan.json())
    kinds = [(s["kind"], s["op"]) for s in described["steps"]]
    assert kinds == [("view", "aten.t.default"), ("native", "aten.mm.default"), ("fallback", "aten.cos.default")]
    matmul = described["steps"][1]
    assert matmul["operands"][0]["device_size"] == [2, 3, 64]
    moved = 64 * 2 * 128 + 70 * 128  # reads [70, 64] sticked along 70, writes it sticked along 64
    assert matmul["restickifies"] == [
        {"shape": [70, 64], "dtype": "torch.float16", "have": 0, "need": 1, "whole": True, "bytes": moved}
    ]
    assert (described["facts"]["restickifies"], described["facts"]["restickified_bytes"]) == (1, moved)
    assert matmul["operands"][1]["stick_dimension"] == 0
    assert (matmul["cores"], matmul["splits"], matmul["contracted_splits"]) == (6, [3, 1], 2)
    assert matmul["working_set"] == 128 + 128 * 64 + 128
    assert matmul["place"] == {"where": "device", "bytes": 384, "address": None, "reason": "a host operator uses it"}
    text = plan.text()
    assert "native   mm = aten.mm.default(float16[3, 70*], float16[70*, 64]) -> float16[3, 64*]  [" in text
    assert "6 cores, 8.2 KB a core, in device, restickify" in text
    assert "restickify [70, 64] from dimension 0 to dimension 1]" in text
    assert "a roofline, not a measurement" in text


def test_padding_is_counted_per_computed_value():
    plan, _ = planned(lambda x: x + 1, half(3, 65))
    assert plan.facts.padded_bytes == 3 * 63 * 2


def test_a_cache_is_updated_in_place_and_once():
    cache, new, where = half(1, 2, 16, 64), half(1, 2, 1, 64), torch.tensor([3]).to("spyre")

    def step(cache, new, where):
        cache.index_copy_(2, where, new)
        return cache.sum()

    expected = cache.cpu()
    expected[:, :, 3] = new.cpu()[:, :, 0]
    plan, _ = planned(step, cache, new, where)
    assert torch.equal(cache.cpu(), expected)
    update = next(s for s in plan.steps if "index_copy" in str(s.node.target))
    assert update.call is aten.index_copy_.default


def test_an_input_that_is_read_after_its_update_began_is_not_written_early():
    def step(x, where, row):
        old = x * 1
        updated = x.index_copy(0, where, row)
        result = old + x
        x.copy_(updated)
        return result

    x, row, where = half(4, 64), half(1, 64), torch.tensor([2]).to("spyre")
    before = x.cpu()
    _, result = planned(step, x, where, row)
    torch.testing.assert_close(result.cpu(), before * 2, atol=0, rtol=1e-2)
    assert torch.equal(x.cpu()[2], row.cpu()[0])


def test_graph_launches_build_on_the_data_path_and_give_the_same_bits():
    plan, first = planned(lambda x: torch.softmax(x, -1), half(3, 64))
    x = half(3, 64)
    prepared_code = plan.code
    (prepared,) = plan.run([x])
    assert plan.code is prepared_code
    with spyre_emulator.using(launch="graph"):
        (built,) = plan.run([x])
    assert plan.code is not prepared_code
    assert torch.equal(prepared.cpu(), built.cpu())
    assert plan.launches == 3
    assert first.shape == (3, 64)


def test_the_estimate_gives_the_cost_models_softmax():
    """320 us for a softmax of 4096 x 2048 (docs/source/compiler/cost_model.md)."""
    x = torch.empty(4096, 2048, dtype=torch.float16, device="meta")
    assert estimate.estimate(aten._softmax.default, [x], [x]).seconds == pytest.approx(320e-6, rel=0.01)
    with spyre_emulator.using(launch="graph"):
        assert estimate.estimate(aten._softmax.default, [x], [x]).seconds > 4.95e-3


@pytest.mark.parametrize(("sticks", "cores"), [(768, 32), (2374, 2), (2375, 25), (769, 1), (1, 1)])
def test_work_is_divided_evenly(sticks, cores):
    assert cores_for(sticks) == cores
    with spyre_emulator.using(sencores=1):
        assert cores_for(sticks) == 1


def test_explicit_and_default_backend_reach_the_same_compiler():
    x = half(3, 64)
    before = len(compiler.plans)
    torch._dynamo.reset()
    a = torch.compile(lambda x: x * 3, backend="spyre")(x)
    b = torch.compile(lambda x: x * 3)(x)
    assert len(compiler.plans) == before + 2
    assert torch.equal(a.cpu(), b.cpu())


def _views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x.t() + x[:, :1].t(), x.unfold(1, 10, 5).sum(-1), x.as_strided((3, 4), (140, 2), 1) + 1, x[::2, 1::3] * 2,
            x.view(2, 3, 70).transpose(0, 1) * 2, x.unbind(0)[2] + 1, torch.stack([x, x], -1).amax(-1),
            x[0, 0] + x)  # fmt: skip


def _in_place(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.clone()
    y[:, 3:9] = x[:, :6]
    y.t()[5].zero_()
    y[y > 1] = 0
    return y, y.index_copy_(0, torch.tensor([2], device="spyre"), x[:1])


def _reductions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x.max(1).values, x.prod(0), x.var(1), x.argmax(), x.topk(3).indices, torch.linalg.vector_norm(x, 2, 1),
            x.float().sum(0), (x > 0).any(), x.logsumexp(1), x.softmax(0) @ x.t())  # fmt: skip


def _mixed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    i = torch.arange(x.shape[0], device=x.device)
    return i[:, None] + x, x.float() + x.t().float().t(), (i == 2), ~(x > 0), x.bfloat16() * 2, x.gather(1, i[:, None])


def test_of_what_is_indexed_no_more_is_read_than_comes_out():
    weight, rows = half(1000, 64), torch.tensor([[3, 7]]).to("spyre")
    plan, _ = planned(torch.nn.functional.embedding, rows, weight)
    (step,) = json.loads(plan.json())["steps"]
    assert step["estimate"]["bytes"] == 2 * 128 + 2 * 128 + 128  # rows written, rows read, indices


@pytest.mark.parametrize(
    ("function", "rows"), [(_views, 6), (_in_place, 6), (_reductions, 6), (_mixed, 6), (_mixed, 0)]
)
def test_odd_graphs_are_planned_dumped_and_give_the_same_bits(function, rows):
    x = half(rows, 70)
    plan, found = planned(function, x)
    for compiled, eager in zip(found, function(x), strict=True):
        assert compiled.dtype is eager.dtype
        assert torch.equal(compiled.cpu().nan_to_num(7.0), eager.cpu().nan_to_num(7.0))
    assert len(json.loads(plan.json())["steps"]) == len(plan.text().splitlines()) - 3


def test_symbolic_numbers_are_encoded_like_constants():
    def f(x):
        return x + x.shape[0] / 3

    torch._dynamo.reset()
    compiled = torch.compile(f, dynamic=True)
    for length in (5, 7):
        x = torch.randn(length, 6).half().to("spyre")
        assert torch.equal(compiled(x).cpu(), f(x).cpu())
