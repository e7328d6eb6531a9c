"""What the harness relies on from the device ``spyre``, whichever stack provides it: torch_spyre or the emulator.

Only what the public documentation of torch-spyre promises: published eager and compiled operators, 16-bit floats,
shapes of whole sticks. On a host with a card: ``pytest tests/contract`` (docs/real-device.md).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from harness.targets.spyre import SpyreTarget

Tensor = torch.Tensor
# The real stack and PyTorch warn as they please; what this file asserts about warnings, it asserts itself.
pytestmark = pytest.mark.filterwarnings("ignore")
ATOL = RTOL = 0.1
"""compare_with_cpu of torch-spyre's own tests."""
MODEL_ATOL = 0.005
"""Its limit for fp16 model operators."""


@pytest.fixture(scope="module")
def device() -> torch.device:
    target = SpyreTarget()
    reason = target.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return target.device()


@pytest.fixture(scope="module")
def spyre(device: torch.device) -> object:
    return torch.spyre


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).half()


def agrees(call: Callable[..., Tensor], *inputs: Tensor, atol: float = ATOL, rtol: float = RTOL) -> None:
    on_device = call(*(x.to("spyre") for x in inputs))
    assert on_device.device.type == "spyre"
    torch.testing.assert_close(on_device.cpu().float(), call(*(x.float() for x in inputs)), atol=atol, rtol=rtol)


def test_the_device_is_there(device: torch.device, spyre: object) -> None:
    assert (device.type, device.index) == ("spyre", 0)
    assert spyre.is_available() is True
    assert spyre.device_count() >= 1
    assert spyre.current_device() == 0
    assert torch.empty(1, device="spyre").device == device


def test_the_module_has_what_the_harness_asks(spyre: object) -> None:
    assert set(spyre.get_amp_supported_dtype()) == {torch.float16, torch.bfloat16}
    assert spyre.memory.memory_allocated() >= 0
    assert spyre.memory.max_memory_allocated() >= spyre.memory.memory_allocated()
    spyre.synchronize()
    spyre.set_device(0)
    assert spyre.current_stream() is not None
    state = spyre.get_rng_state()
    spyre.set_rng_state(state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32, torch.bool])
def test_values_survive_a_crossing(device: torch.device, dtype: torch.dtype) -> None:
    host = torch.arange(128).view(2, 64).to(dtype)
    there = host.to("spyre")
    back = there.cpu()
    assert (there.dtype, tuple(there.shape), there.stride()) == (dtype, (2, 64), (64, 1))
    assert back.dtype is dtype
    assert torch.equal(back, host)


def test_halves_lose_at_most_one_bit(device: torch.device) -> None:
    host = random(64, 64)
    relative = ((host.to("spyre").cpu() - host).float().abs() / host.float().abs()).max()
    assert float(relative) <= 2.0**-10


UNARY = ("abs", "exp", "neg", "relu", "sigmoid", "tanh", "floor")


@pytest.mark.parametrize("name", UNARY)
def test_unary_operators_agree_with_the_host(device: torch.device, name: str) -> None:
    inputs = random(64, 64) if name != "floor" else torch.arange(64.0).repeat(64, 1).half() / 4 + 0.125
    agrees(getattr(torch, name), inputs, atol=MODEL_ATOL, rtol=MODEL_ATOL)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "maximum", "minimum", "div"])
def test_binary_operators_agree_with_the_host(device: torch.device, name: str) -> None:
    agrees(getattr(torch, name), random(64, 64), random(64, 64, seed=1).abs() + 0.5, atol=MODEL_ATOL, rtol=MODEL_ATOL)


def test_matrix_operators_agree_with_the_host(device: torch.device) -> None:
    agrees(torch.mm, random(64, 128), random(128, 64, seed=1, scale=0.1))
    agrees(torch.bmm, random(2, 64, 128), random(2, 128, 64, seed=1, scale=0.1))
    agrees(F.linear, random(64, 128), random(64, 128, seed=1, scale=0.1), random(64, seed=2))


def test_reductions_and_activations_agree_with_the_host(device: torch.device) -> None:
    x = random(64, 128)
    agrees(lambda t: torch.softmax(t, -1), x, atol=MODEL_ATOL, rtol=MODEL_ATOL)
    agrees(F.silu, x, atol=MODEL_ATOL, rtol=MODEL_ATOL)
    agrees(lambda t: t.sum(-1), x)
    agrees(lambda t: t.amax(-1), x, atol=MODEL_ATOL, rtol=MODEL_ATOL)


def test_norms_and_attention_agree_with_the_host(device: torch.device) -> None:
    weight, bias = random(128, seed=1), random(128, seed=2)
    agrees(lambda x, w, b: F.layer_norm(x, (128,), w, b), random(64, 128), weight, bias)
    agrees(lambda x, w: F.rms_norm(x, (128,), w, 1e-5), random(64, 128), weight)
    q, k, v = (random(1, 2, 64, 64, seed=n) for n in range(3))
    agrees(F.scaled_dot_product_attention, q, k, v)


def test_views_and_cat_move_values_unchanged(device: torch.device) -> None:
    agrees(lambda x: x.transpose(0, 1) + 0.0, random(64, 128), atol=MODEL_ATOL, rtol=MODEL_ATOL)
    agrees(lambda x, y: torch.cat([x, y], 0), random(64, 64), random(64, 64, seed=1), atol=MODEL_ATOL, rtol=MODEL_ATOL)


def test_an_operator_in_place_writes_its_operand(device: torch.device) -> None:
    x = random(64, 64).to("spyre")
    same = x.add_(random(64, 64, seed=1).to("spyre"))
    assert same is x
    wanted = random(64, 64).float() + random(64, 64, seed=1).float()
    torch.testing.assert_close(x.cpu().float(), wanted, atol=MODEL_ATOL, rtol=MODEL_ATOL)


def test_a_scalar_is_read(device: torch.device) -> None:
    assert torch.full((1,), 2.5, dtype=torch.float16, device="spyre").item() == 2.5


def test_a_module_compiles_and_agrees_with_eager(device: torch.device) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.SiLU(), torch.nn.Linear(64, 64))
    model.half().eval()
    x = random(64, 128)
    with torch.no_grad():
        wanted = model.float()(x.float())
        on_device = model.half().to("spyre")
        compiled = torch.compile(on_device, dynamic=False)(x.to("spyre")).cpu().float()
        eager = on_device(x.to("spyre")).cpu().float()
    torch.testing.assert_close(compiled, wanted, atol=ATOL, rtol=RTOL)
    torch.testing.assert_close(compiled, eager, atol=MODEL_ATOL, rtol=MODEL_ATOL)


def test_a_fallback_warns_and_is_right(device: torch.device) -> None:
    x = random(64, 64)
    with pytest.warns(UserWarning, match="is falling back to cpu"):
        result = torch.sin(x.to("spyre"))
    torch.testing.assert_close(result.cpu().float(), torch.sin(x.float()), atol=MODEL_ATOL, rtol=MODEL_ATOL)


def test_random_numbers_follow_the_seed(device: torch.device) -> None:
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(torch.empty(64, 64, dtype=torch.float16, device="spyre").normal_().cpu())
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_what_was_used_is_recorded(device: torch.device) -> None:
    with SpyreTarget().recording() as usage:
        torch.mm(random(64, 64).to("spyre"), random(64, 64).to("spyre"))
    facts = usage.facts()
    assert facts.ops_on_device >= 1
    assert any("mm" in use.op for use in facts.ops)
