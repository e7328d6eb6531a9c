"""Running sums in 16 bits: exact small cases, agreement of C and torch, the published sum."""

import pytest
import torch

from spyre_emulator import numerics, settings
from spyre_emulator.accumulation import Accumulation, accumulating, total


def test_a_16_bit_lane_stops_growing_where_the_addend_is_below_half_a_step():
    x = torch.ones(1, 4096)
    with accumulating(sum=Accumulation("dl16", 1, "nearest-even")):
        assert total(x, [1], False, "sum").tolist() == [1024.0]
    with accumulating(sum=Accumulation("dl16", 4, "nearest-even")):
        assert total(x, [1], False, "sum").tolist() == [4096.0]
    with accumulating(sum=Accumulation("fp32")):
        assert total(x, [1], False, "sum").tolist() == [4096.0]


@pytest.mark.skipif(not numerics.has_native_kernel(), reason="the C kernel was not built")
@pytest.mark.parametrize("length", [1, 7, 64, 130])
@pytest.mark.parametrize("lanes", [1, 8, 64])
def test_c_and_torch_agree(length, lanes):
    x = numerics.rounded(torch.randn(5, length))
    with accumulating(sum=Accumulation("dl16", lanes, "truncate")):
        fast = total(x, [1], True, "sum")
        with settings.using(native_kernel=False):
            assert torch.equal(total(x, [1], True, "sum"), fast)
    assert fast.shape == (5, 1)


def test_any_dimensions():
    x = numerics.rounded(torch.randn(2, 3, 4))
    with accumulating(sum=Accumulation("dl16", 64, "nearest-even")):
        result = total(x, [0, -1], False, "sum")
        assert result.shape == (3,)
        torch.testing.assert_close(result, x.sum([0, 2]), atol=0.05, rtol=0.01)


def test_the_published_sum_of_squares_is_predicted():
    """torch-spyre#2400: sum(x·x) of 4096 numbers gave 4.0741e-03 on the device, 4.0634e-03 in truth."""
    x = torch.randn(4096, generator=torch.Generator().manual_seed(42)) * 1e-3
    x = numerics.rounded(x.half())
    assert numerics.rounded(total(numerics.rounded(x * x), [0], False, "sum")).item() == pytest.approx(
        4.0741e-3, abs=5e-8
    )


def test_bad_parameters_are_named():
    with pytest.raises(settings.SettingError, match="lanes=3: must be a power of two"):
        Accumulation("dl16", 3)
    with pytest.raises(settings.SettingError, match="no operator class 'summ'"), accumulating(summ=Accumulation()):
        pass
