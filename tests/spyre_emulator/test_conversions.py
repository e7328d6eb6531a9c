"""Host/device conversion profiles, pinned with the figures of the issues that report them."""

import pytest
import torch

import spyre_emulator
from spyre_emulator import conversions

INF, NAN = float("inf"), float("nan")


def to_device(values, profile):
    with spyre_emulator.using(conversion=profile):
        return conversions.to_device(torch.tensor(values, dtype=torch.float16), torch.float16)


def to_host(values, profile):
    with spyre_emulator.using(conversion=profile):
        return conversions.to_host(torch.tensor(values, dtype=torch.float32), torch.float16)


@pytest.mark.parametrize("profile", ["clean", "element-2026-09"])
def test_ten_fraction_bits_become_nine_half_up_and_the_largest_is_clamped(profile):
    values = [1 + 1 / 1024, 1 + 2 / 1024, 65504.0, -65504.0, 2.0**-24]
    assert to_device(values, profile).tolist() == [1 + 2 / 1024, 1 + 2 / 1024, 65472.0, -65472.0, 2.0**-24]


def test_infinity_and_nan_arrive_as_each_profile_says():
    assert to_device([INF, -INF], "clean").tolist() == [INF, -INF]
    assert to_device([INF, -INF], "element-2026-09").tolist() == [2.0**32, -(2.0**32)]
    assert to_device([INF, NAN], "rebias-2026-04").tolist() == [65536.0, 98304.0]
    assert torch.isnan(to_device([NAN], "clean")).all()


@pytest.mark.parametrize(
    "chain",
    [
        [2.9981136e-05, 1.4960766e-05, 7.4505806e-06, 3.6954880e-06],
        [1.9550323e-05, 9.7751617e-06],
        [5.96e-08, 0.0],
        [6.1035156e-05, 6.1035156e-05],
    ],
)
def test_subnormals_halve_at_every_crossing(chain):
    """torch-spyre#4689"""
    value = torch.tensor(chain[0], dtype=torch.float16)
    for expected in chain[1:]:
        value = to_host(to_device(value.item(), "element-2026-09").item(), "element-2026-09")
        assert value.item() == pytest.approx(expected, rel=1e-6)
    assert to_host(chain[0], "clean").item() == pytest.approx(chain[0], rel=1e-2)


def test_large_device_values_become_infinite_on_the_host():
    assert to_host([65472.0, 65536.0, -1e6], "clean").tolist() == [65472.0, INF, -INF]
    assert to_host([65536.0, -1e6], "element-2026-09").tolist() == [INF, -INF]
    assert to_host([65536.0], "rebias-2026-04").tolist() == [INF]
    assert torch.isnan(to_host([98304.0], "rebias-2026-04")).all()


def test_bfloat16_is_rounded_or_truncated_on_the_way_back():
    """torch-spyre#2478"""
    x = torch.tensor([18.09375])
    assert conversions.to_host(x, torch.bfloat16).item() == 18.125
    with spyre_emulator.using(bf16_to_host="bf16-trunc"):
        assert conversions.to_host(x, torch.bfloat16).item() == 18.0


def test_bfloat16_beyond_the_range_saturates():
    x = torch.tensor([torch.finfo(torch.bfloat16).min, -INF], dtype=torch.bfloat16)
    assert conversions.to_device(x, torch.bfloat16).tolist() == [-8573157376.0, -INF]


def test_int64_is_narrowed_modulo_two_to_the_32():
    x = torch.tensor([1, 2**31, -(2**31) - 1])
    assert conversions.to_device(x, torch.int64).tolist() == [1, -(2**31), 2**31 - 1]
