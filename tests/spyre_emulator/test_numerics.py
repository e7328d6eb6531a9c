"""DLFloat16: codes, rounding rules, agreement of the C kernel with torch and with exact arithmetic."""

from fractions import Fraction

import pytest
import torch

from spyre_emulator import numerics, settings

GOLDEN = {
    1.0: 0x3E00,
    0.00390625: 11776,
    1e-5: 7327,
    0.000347222: 9944,
    1.1920929e-07: 4096,
}
"""Constant encodings of torch-spyre's host encoder."""


def exact_value(code: int) -> Fraction:
    sign, exponent, fraction = code >> 15, (code >> 9) & 63, code & 511
    if exponent == 0 and fraction == 0:
        return Fraction(0)
    return (-1) ** sign * Fraction(2) ** (exponent - 31) * (1 + Fraction(fraction, 512))


def all_codes() -> torch.Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)


def patterns(count: int) -> torch.Tensor:
    bits = torch.randint(-(2**31), 2**31, (count,), dtype=torch.int64).to(torch.int32)
    ties = (torch.randint(-(2**17), 2**17, (count,), dtype=torch.int64) * 2**14 + 2**13).to(torch.int32)
    return torch.cat([bits, ties]).view(torch.float32)


@pytest.fixture(params=[True, False], ids=["c", "torch"])
def _kernel(request):
    if request.param and not numerics.has_native_kernel():
        pytest.skip("the C kernel was not built")
    with settings.using(native_kernel=request.param):
        yield


@pytest.mark.usefixtures("_kernel")
def test_every_code_decodes_to_its_exact_value_and_back():
    codes = all_codes()
    values = numerics.decode(codes)
    expected = [exact_value(int(c) & 0xFFFF) for c in codes]
    special = (codes.to(torch.int32) & 0x7FFF) == 0x7FFF
    assert torch.isnan(values[special]).all()
    assert [Fraction(float(v)) for v in values[~special]] == [
        e for e, s in zip(expected, special.tolist(), strict=True) if not s
    ]
    assert torch.equal(numerics.encode(values)[~special], codes[~special])


@pytest.mark.usefixtures("_kernel")
@pytest.mark.parametrize(("value", "code"), GOLDEN.items())
def test_golden_constants(value, code):
    assert numerics.encode(torch.tensor([numerics.round_scalar(value)])).item() == code


def test_host_constants_saturate_where_the_host_encoder_does():
    largest = numerics.round_scalar(torch.finfo(torch.float32).max)
    assert numerics.encode(torch.tensor([largest])).item() == 0x7DFF


@pytest.mark.usefixtures("_kernel")
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("nearest-even", [1.0, 1 + 2 / 512, 1 + 2 / 512, 1.0]),
        ("nearest-up", [1 + 1 / 512, 1 + 2 / 512, 1 + 2 / 512, 1.0]),
        ("truncate", [1.0, 1 + 1 / 512, 1 + 1 / 512, 1.0]),
    ],
)
def test_rounding_rules_on_ties_and_neighbours(rule, expected):
    x = torch.tensor([1 + 1 / 1024, 1 + 3 / 1024, 1 + 1.9 / 512, 1 + 0.4 / 512])
    assert numerics.rounded(x, numerics.RULES[rule]).tolist() == expected
    assert numerics.rounded(-x, numerics.RULES[rule]).tolist() == [-e for e in expected]


@pytest.mark.usefixtures("_kernel")
def test_ends_of_the_range():
    tiny, large = numerics.SMALLEST, numerics.LARGEST
    x = torch.tensor([tiny, tiny * 0.51, tiny * 0.49, -0.0, large, large * 1.01, float("-inf"), float("nan")])
    result = numerics.rounded(x, numerics.RULES["nearest-even"])
    assert result[:3].tolist() == [tiny, tiny, 0.0]
    assert torch.signbit(result[3])
    assert result[4:7].tolist() == [large, float("inf"), float("-inf")]
    assert torch.isnan(result[7])


@pytest.mark.skipif(not numerics.has_native_kernel(), reason="the C kernel was not built")
@pytest.mark.parametrize("rule", list(numerics.RULES))
def test_c_and_torch_agree_bit_for_bit(rule):
    x = patterns(1_000_000)
    fast = numerics.rounded(x, numerics.RULES[rule])
    with settings.using(native_kernel=False):
        slow = numerics.rounded(x, numerics.RULES[rule])
    assert torch.equal(fast.view(torch.int32), slow.view(torch.int32))


def test_nearest_even_is_the_nearest_number_by_exact_arithmetic():
    values = torch.cat([patterns(200), torch.randn(200)])
    values = values[torch.isfinite(values) & (values.abs() < 2.0**31) & (values.abs() > 2.0**-30)]
    result = numerics.rounded(values, numerics.RULES["nearest-even"])
    grid = numerics.decode(torch.arange(0, 0x7FFF, dtype=torch.int32).to(torch.int16)).to(torch.float64)
    for v, r in zip(values.abs().tolist(), result.abs().tolist(), strict=True):
        assert abs(v - r) == (grid - v).abs().min().item()


@pytest.mark.parametrize("shape", [(3, 4), (0, 4), ()])
def test_views_of_any_strides_are_rounded_in_place(shape):
    x = torch.full(shape, 1 + 1 / 2048)
    assert numerics.round_(x) is x
    assert torch.equal(x, torch.ones(shape))
    y = torch.full((4, 6), 1 + 1 / 2048)
    numerics.round_(y[:, ::2])
    assert torch.equal(y[:, ::2], torch.ones(4, 3))
    assert torch.equal(y[:, 1::2], torch.full((4, 3), 1 + 1 / 2048))
