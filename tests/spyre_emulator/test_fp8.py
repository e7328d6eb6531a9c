"""fp8 operators: exact values of each step, eager and compiled alike, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import spyre_emulator
from spyre_emulator.numerics import CONSTANT_LARGEST

ops = torch.ops.spyre
E4M3 = torch.float8_e4m3fn
ROWS = [[448.0, -224.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.3, -0.02, 1e-4]]
SCALES = [[1.0], [2.0**-23], [0.0066986083984375]]
"""448 and 3 times the nearest 1-6-9 number to 1/448, 0.002231597900390625; the row of zeros is clipped."""
CODES = [[448.0, -224.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [448.0, 44.0, -3.0, 0.015625]]
"""1/scale is 149.25 in the last row, which gives 448 (clamped), 44.8125, -2.98828125 and 0.0149."""
BACK = [[448.0, -224.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.294921875, -0.020111083984375, 0.00010466575622558594]]


def half(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float16).to("spyre")


def both(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> list[list[float]]:
    eager = function(*args).float().cpu()
    assert torch.equal(torch.compile(function, backend="spyre")(*args).float().cpu(), eager)
    values: list[list[float]] = eager.tolist()
    return values


def test_a_scale_is_the_largest_magnitude_times_the_encoded_constant_clipped() -> None:
    assert both(lambda x: ops.quantscalepertokenfp8(x), half(ROWS)) == SCALES
    enormous = torch.tensor([[3e38, 1.0]], dtype=torch.bfloat16).to("spyre")
    assert both(lambda x: ops.quantscalepertokenfp8(x, 1.0), enormous) == [[CONSTANT_LARGEST]]


@pytest.mark.parametrize("name", ["quantize_fp8_with_scale", "quantize_weight_fp8_with_scale"])
def test_quantising_multiplies_by_the_rounded_reciprocal_clamps_and_converts(name: str) -> None:
    x, scale = half(ROWS), half(SCALES)
    assert getattr(ops, name)(x, scale).dtype is E4M3
    assert both(lambda x, scale: getattr(ops, name)(x, scale), x, scale) == CODES
    assert getattr(ops, name)(half([[1e4, -1e4]]), half([[1.0]])).cpu().float().tolist() == [[448.0, -448.0]]


def test_dequantising_is_exact_up_to_the_rounding_of_the_product() -> None:
    codes = torch.tensor(CODES).to(E4M3).to("spyre")
    assert both(lambda q, scale: ops.dequantize_fp8_with_scale(q, scale), codes, half(SCALES)) == BACK


def test_every_finite_code_survives_the_way_through_16_bits() -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(E4M3)
    codes = codes[codes.float().isfinite()].view(2, 127).to("spyre")
    one = half([[1.0]])
    again = ops.quantize_fp8_with_scale(ops.dequantize_fp8_with_scale(codes, one), one)
    assert torch.equal(again.cpu().view(torch.uint8), codes.cpu().view(torch.uint8))


def test_the_older_form_makes_its_scale_and_gives_it_as_float32() -> None:
    codes, scale = ops.quantize_fp8(half(ROWS))
    assert (codes.cpu().float().tolist(), scale.cpu().tolist(), scale.dtype) == (CODES, SCALES, torch.float32)


@pytest.mark.parametrize("name", ["qfp8ch", "qfp8wt"])
def test_a_conversion_rounds_to_nearest_ties_to_even(name: str) -> None:
    values = half([[17.0, 18.0, 19.0, 27.0, -0.013, 0.0015]])
    assert both(lambda x: getattr(ops, name)(x), values) == [[16.0, 18.0, 20.0, 28.0, -0.013671875, 0.001953125]]


def test_the_matmul_gives_a_16_bit_product_and_scales_and_bias_follow() -> None:
    a = torch.zeros(1, 128)
    a[0, :3] = torch.tensor([448.0, 1.0, 0.25])
    b = torch.zeros(128, 1)
    b[:3, 0] = torch.tensor([2.0, 1.0, 1.0])
    a8, b8 = (t.to(E4M3).to("spyre") for t in (a, b))
    exact = 448.0 * 2 + 1 + 0.25  # 897.25: 1-6-9 numbers are 1 apart there
    assert exact == 897.25
    assert both(lambda a, b: ops.scaled_mm(a, b), a8, b8) == [[897.0]]
    three, bias = torch.tensor(3.0).to("spyre"), half([[5.0]])

    def scaled(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(a, b, three, three, bias.reshape(1), out_dtype=torch.float16)

    # 897·3 = 2691 -> 2692 (4 apart, ties away), ·3 = 8076 -> 8080 (8 apart, a tie), + 5 = 8085 -> 8088
    assert scaled(a8, b8).cpu().tolist() == [[8088.0]]


def test_ignored_arguments_are_said_to_be() -> None:
    a8, one = torch.ones(16, 128).to(E4M3).to("spyre"), torch.tensor(1.0).to("spyre")
    with pytest.warns(UserWarning, match="ignores use_fast_accum"):
        result = torch._scaled_mm(a8, a8.t(), one, one, out_dtype=torch.float16, use_fast_accum=True)
    assert result.cpu().unique().tolist() == [128.0]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x, q: ops.quantize_fp8_with_scale(x.float(), x[:, :1]), "first operand is torch.float32"),
        (lambda x, q: ops.dequantize_fp8_with_scale(q, x[:, :1].float()), "scale is torch.float32, .*scale.half()"),
        (lambda x, q: ops.scaled_mm(q, x), "second operand is torch.float16"),
        (lambda x, q: ops.scaled_mm(q, q.t(), torch.float32), "out_dtype is torch.float32"),
        (lambda x, q: ops.qfp8ch(x.sum()), "no dimension"),
        (lambda x, q: ops.scaled_mm(q, q), r"\(3, 4\) and \(3, 4\) cannot be multiplied"),
        (lambda x, q: ops.quantize_fp8_with_scale(x, x[:2, :1, None]), r"a scale of \(2, 1, 1\) does not fit"),
        (lambda x, q: ops.quantscalepertokenfp8(x, 0.0), r"scale_ub is 0\.0"),
        (lambda x, q: torch._scaled_mm(x, q, x, x), "first operand is torch.float16"),
    ],
)
def test_operands_of_the_wrong_dtype_are_refused(
    call: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], text: str
) -> None:
    x = half(ROWS)
    with pytest.raises(ValueError, match=text):
        call(x, x.to(torch.float32).to(E4M3))


def test_a_result_dtype_is_asked_for_and_an_uneven_k_aborts() -> None:
    q, one = torch.ones(2, 128).to(E4M3).to("spyre"), torch.tensor(1.0).to("spyre")
    with pytest.raises(ValueError, match="pass out_dtype=torch"):
        torch._scaled_mm(q, q.t(), one, one)
    with pytest.raises(RuntimeError, match="FP8 matmul with K=64"):
        ops.scaled_mm(q[:, :64], q[:, :64].t())


def test_empty_operands_give_empty_results() -> None:
    assert ops.qfp8ch(half([[1.0]])[:0]).shape == (0, 1)
    q = torch.ones(2, 128).to(E4M3).to("spyre")
    assert ops.scaled_mm(q[:0], q.t()).shape == (0, 2)


def test_the_published_states_are_booked() -> None:
    x, scale = half(ROWS), half(SCALES)
    with spyre_emulator.record() as recording:
        ops.quantize_fp8_with_scale(x, scale)
        ops.qfp8ch(x)
    assert {v.op: v.state for v in recording.ops} == {
        "spyre.quantize_fp8_with_scale.default": "spyre_enabled",
        "spyre.qfp8ch.default": "not_implemented",
    }
    with spyre_emulator.using(coverage="published"), pytest.raises(NotImplementedError, match="spyre::qfp8ch"):
        ops.qfp8ch(x)
