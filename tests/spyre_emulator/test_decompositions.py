"""Device programs: where they round, and how far from exact arithmetic that leaves them."""

import math

import pytest
import torch

import spyre_emulator
from spyre_emulator import numerics
from spyre_emulator.accumulation import Accumulation, accumulating


def half(x):
    return x.half().to("spyre")


def is_dlfloat(x):
    return torch.equal(numerics.rounded(x, numerics.RULES["truncate"]), x)


def test_softmax_sums_to_one_within_16_bits_and_is_exactly_zero_where_masked():
    x = torch.randn(4, 70)
    x[:, 60:] = -math.inf
    result = torch.softmax(half(x), -1).cpu().float()
    assert torch.equal(result[:, 60:], torch.zeros(4, 10))
    torch.testing.assert_close(result, torch.softmax(x, -1), atol=1e-3, rtol=2e-2)


def test_masked_positions_can_leak_as_on_the_device():
    x = torch.tensor([[0.0, -math.inf]])
    with spyre_emulator.using(masked_exponential=2e-5):
        assert torch.softmax(half(x), -1).cpu()[0, 1].item() == pytest.approx(2e-5, rel=1e-2)


def test_a_float32_softmax_is_computed_in_16_bit_and_returned_as_float32():
    x = torch.randn(3, 64)
    result = torch.softmax(x.to("spyre"), -1)
    assert result.dtype is torch.float32
    assert is_dlfloat(result.cpu())


def test_layer_norm_stays_within_the_published_difference():
    """torch-spyre#1980: clean maximum difference about 0.008 at 4096, affine."""
    x, w, b = torch.randn(4, 4096), torch.rand(4096) + 0.5, torch.randn(4096) * 0.1
    result = torch.nn.functional.layer_norm(half(x), (4096,), half(w), half(b)).cpu().float()
    x, w, b = (t.half().float() for t in (x, w, b))
    assert (result - torch.nn.functional.layer_norm(x, (4096,), w, b)).abs().max() < 2 * 0.008


@pytest.mark.parametrize(("hidden", "published"), [(1024, 0.0173), (2048, 0.0251)])
def test_rms_norm_is_within_a_factor_of_two_of_the_published_error(hidden, published):
    x, w = torch.randn(128, hidden) / math.sqrt(hidden), torch.rand(hidden) + 0.5
    result = torch.nn.functional.rms_norm(half(x), (hidden,), half(w), 1e-6).cpu().double()
    x, w = (half(t).cpu().double() for t in (x, w))
    exact = torch.nn.functional.rms_norm(x, (hidden,), w, 1e-6)
    error = ((result - exact).abs() / exact.abs()).mean().item()
    assert published / 2 < error < published * 2


@pytest.mark.parametrize("length", [5, 64, 130])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_tiles(length, causal):
    q, k, v = (torch.randn(1, 4, length, 32) for _ in range(3))
    result = torch.nn.functional.scaled_dot_product_attention(half(q), half(k), half(v), is_causal=causal)
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    torch.testing.assert_close(result.cpu().float(), exact, atol=2e-2, rtol=2e-2)


def test_attention_with_masks_groups_and_rows_that_see_nothing():
    q, k, v = torch.randn(1, 4, 3, 32), torch.randn(1, 2, 70, 32), torch.randn(1, 2, 70, 32)
    mask = torch.rand(1, 1, 3, 70) > 0.4
    mask[:, :, 1] = False
    given = {"attn_mask": mask, "enable_gqa": True}
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, **given)
    given["attn_mask"] = mask.to("spyre")
    result = torch.nn.functional.scaled_dot_product_attention(half(q), half(k), half(v), **given).cpu().float()
    torch.testing.assert_close(result, exact, atol=2e-2, rtol=2e-2)
    assert torch.equal(result[:, :, 1], torch.zeros(1, 4, 32))


def test_numbers_are_encoded_like_every_constant():
    x = torch.ones(3)
    assert (half(x) * 0.1).cpu().tolist() == [numerics.round_scalar(0.1)] * 3
    assert (x.to("spyre") * 0.1).cpu().tolist() == (x * 0.1).tolist()
    mask = torch.full((2,), torch.finfo(torch.float16).min, dtype=torch.float16, device="spyre")
    assert (mask == torch.finfo(torch.float16).min).all()


def test_addmm_rounds_the_product_before_the_sum():
    a, b, c = torch.randn(3, 64), torch.randn(64, 5), torch.randn(5)
    result = torch.addmm(half(c), half(a), half(b))
    product = half(a) @ half(b)
    assert torch.equal(result.cpu(), (product + half(c)).cpu())


def test_the_mean_uses_its_accumulation():
    x = half(torch.ones(1, 4096))
    with accumulating(mean=Accumulation("dl16", 1, "truncate")):
        assert x.mean(-1).item() == 0.25
    with accumulating(mean=Accumulation("fp32")):
        assert x.mean(-1).item() == 1.0


def test_fp8_matmul_scales_after_a_16_bit_product():
    a, b = torch.randn(16, 128), torch.randn(16, 128)
    a8, b8 = (t.to(torch.float8_e4m3fn).to("spyre") for t in (a, b))
    one, two = torch.tensor(1.0).to("spyre"), torch.tensor(2.0).to("spyre")
    result = torch._scaled_mm(a8, b8.t(), scale_a=one, scale_b=two, out_dtype=torch.bfloat16)
    exact = (a8.cpu().float() @ b8.cpu().float().t()) * 2
    torch.testing.assert_close(result.cpu().float(), exact, atol=0.5, rtol=0.1)
    with pytest.raises(RuntimeError, match=r"SIGABRT: FP8 matmul with K=64, K must be a multiple of 128"):
        torch._scaled_mm(a8[:, :64], b8[:, :64].t(), scale_a=one, scale_b=two, out_dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_result_of_a_16_bit_dtype_is_a_dlfloat16_number(dtype):
    x = torch.randn(5, 64).to(dtype).to("spyre")
    for result in (x * x, x.exp(), x @ x.t(), x.cumsum(0), torch.sin(x), x.std(-1), torch.erf(x), x.double().to(dtype)):
        assert result.dtype is dtype
        assert is_dlfloat(result.float().cpu())


def test_softmax_of_a_float32_row_that_is_masked_as_a_whole_is_even():
    masked = torch.full((2, 4), torch.finfo(torch.float32).min)
    masked[1, 0] = 0.0
    assert masked.to("spyre").softmax(-1).cpu().tolist() == [[0.25] * 4, [1.0, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("dtype", "largest"), [(torch.float16, 65472.0), (torch.bfloat16, 2.0**33)])
def test_nan_to_num_replaces_infinities_by_the_ends_of_the_logical_dtype(dtype, largest, compiled):
    """Those that the device receives: 65504 becomes 65472, and bfloat16's 0x7FFE reads back as 2^33."""
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 1.0], dtype=dtype).to("spyre")

    def run(*args):
        function = torch.compile(torch.nan_to_num) if compiled else torch.nan_to_num
        return function(x, *args)

    assert torch.isfinite(run()).all().item()
    assert run().cpu().tolist() == [largest, -largest, 0.0, 1.0]
    assert run(2.0, None, -3.0).cpu().tolist() == [largest, -3.0, 2.0, 1.0]


MASKS = {
    "boolean": torch.ones(10, 10, dtype=torch.bool).tril(),
    "additive": torch.zeros(10, 10).masked_fill(~torch.ones(10, 10, dtype=torch.bool).tril(), -math.inf),
    "smallest number": torch.full((10, 10), torch.finfo(torch.float32).min).triu(1),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(2, 4, 10, 16), (4, 10, 16)], ids=["4 dimensions", "3 dimensions"])
@pytest.mark.parametrize("compiled", [False, True])
def test_attention_masks_with_gradients_and_without(mask, dtype, shape, compiled):
    attend = torch.nn.functional.scaled_dot_product_attention
    host = [torch.randn(shape).to(dtype).float().requires_grad_() for _ in range(3)]
    device = [t.detach().to(dtype).to("spyre").requires_grad_() for t in host]
    expected = attend(*host, attn_mask=mask)
    moved = (
        mask.to("spyre") if mask.dtype is torch.bool else mask.clamp_min(torch.finfo(dtype).min).to(dtype).to("spyre")
    )
    run = torch.compile(attend) if compiled else attend
    with torch.no_grad():
        torch.testing.assert_close(run(*device, attn_mask=moved).cpu().float(), expected.detach(), atol=2e-2, rtol=0)
    result = run(*device, attn_mask=moved)
    torch.testing.assert_close(result.detach().cpu().float(), expected.detach(), atol=2e-2, rtol=0)
    expected.sum().backward()
    result.sum().backward()
    for a, b in zip(device, host, strict=True):
        torch.testing.assert_close(a.grad.cpu().float(), b.grad, atol=3e-2, rtol=0)
