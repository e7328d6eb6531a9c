"""Device layouts against the published examples."""

import pytest
import torch

from spyre_emulator import layout


@pytest.mark.parametrize(
    ("shape", "dtype", "device_size", "stride_map"),
    [
        ((512, 256), torch.float16, (4, 512, 64), (64, 256, 1)),
        ((128, 256, 512), torch.float16, (256, 8, 128, 64), (512, 64, 131072, 1)),
        ((50, 10, 200), torch.float16, (10, 4, 50, 64), (200, 64, 2000, 1)),
        ((1, 8, 576, 128), torch.float16, (8, 576, 2, 1, 64), (73728, 128, 64, 589824, 1)),
        ((2, 4, 8, 4), torch.float32, (4, 8, 1, 2, 32), (32, 4, 32, 128, 1)),
    ],
)
def test_published_examples(shape, dtype, device_size, stride_map):
    strides = torch.empty(shape, device="meta").stride()
    result = layout.default_layout(shape, strides, dtype)
    assert (result.device_size, result.stride_map) == (device_size, stride_map)


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((), torch.float16, 128),
        ((1,), torch.float16, 128),
        ((3, 64), torch.float16, 384),
        ((3, 65), torch.float16, 768),
        ((3, 65), torch.float32, 3 * 3 * 128),
        ((0, 5), torch.float16, 0),
        ((130,), torch.bool, 3 * 128),
    ],
)
def test_whole_sticks_are_charged(shape, dtype, expected):
    assert layout.device_bytes(shape, dtype) == expected
