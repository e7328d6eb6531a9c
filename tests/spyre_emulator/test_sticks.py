"""Sticks of buffers as their views see them, and what they cost."""

from __future__ import annotations

import pytest
import torch

from spyre_emulator.sticks import SPARSE, Geometry, default_stick, geometry, restickify, sees_whole_sticks


def of(tensor: torch.Tensor) -> Geometry:
    return geometry(tensor)


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.float16, device="meta")


@pytest.mark.parametrize(
    ("value", "stick"),
    [
        (meta(3, 64), 1),
        (meta(64), 1),
        (meta(), SPARSE),
        (meta(8, 1), SPARSE),
        (meta(3, 64).t(), 1),
        (meta(2, 3, 64).transpose(0, 1), 1),
    ],
)
def test_a_fresh_tensor_is_sticked_along_its_last_dimension(value: torch.Tensor, stick: int) -> None:
    assert default_stick(of(value)) == stick


def test_padding_depends_on_the_dimension_that_is_sticked() -> None:
    shape = of(meta(3, 65))
    assert [shape.device_bytes(stick) for stick in (1, 65, SPARSE)] == [3 * 2 * 128, 65 * 128, 3 * 65 * 128]
    assert shape.padded_bytes(1) == 3 * 63 * 2
    assert of(meta()).device_bytes(SPARSE) == 128
    assert of(meta(0, 5)).device_bytes(1) == 0


def test_a_layout_puts_the_sticked_dimension_last() -> None:
    shape = of(meta(512, 256))
    assert shape.layout(1)[:2] == ((4, 512, 64), (64, 256, 1))
    assert shape.layout(256)[:2] == ((8, 256, 64), (64 * 256, 1, 256))
    assert shape.layout(SPARSE)[:2] == ((256, 1, 512, 64), (1, 0, 256, 0))


@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        (lambda x: x.t(), True),
        (lambda x: x.view(4, 2, 64), True),
        (lambda x: x.view(4, 4, 32), False),
        (lambda x: x[:, :70], True),
        (lambda x: x[:, 64:], True),
        (lambda x: x[:, 32:], False),
        (lambda x: x[2:], True),
        (lambda x: x.reshape(-1), True),
        (lambda x: x[:, None, :].expand(4, 3, 128), True),
        (lambda x: x.unfold(1, 64, 64), True),
        (lambda x: x.unfold(1, 64, 32), False),
        (lambda x: x[:, 0], True),
        (lambda x: x[:0, 5:], True),
    ],
)
def test_a_view_has_to_see_whole_sticks(cut: object, whole: bool) -> None:
    x = meta(4, 128)
    assert sees_whole_sticks(of(cut(x)), of(x), 1) is whole  # type: ignore[operator]


def test_rows_of_partial_sticks_cannot_be_joined() -> None:
    x = meta(4, 32)
    assert not sees_whole_sticks(of(x.view(128)), of(x), 1)


def test_a_restickify_reads_the_one_form_and_writes_the_other() -> None:
    moved = restickify(of(meta(64, 70).t()), 1, 1, readable=True)
    assert moved[:5] == ((70, 64), torch.float16, 0, 1, True)
    assert (moved.bytes, moved.supported) == (64 * 2 * 128 + 70 * 128, True)
    wide = restickify(of(torch.empty(4, 4, device="meta").t()), 1, 1, readable=True)
    assert not wide.supported
