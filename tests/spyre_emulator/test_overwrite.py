"""torch.ops.spyre.overwrite: a block lands where the offsets say, in place or in a copy."""

from __future__ import annotations

import pytest
import torch

import spyre_emulator


def rows() -> torch.Tensor:
    return torch.zeros(3, 2, dtype=torch.float16).to("spyre")


BLOCK = torch.tensor([[1.0, 2.0]], dtype=torch.float16)
WANTED = [[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]


def test_overwrite_writes_in_place_and_says_that_it_is_deprecated() -> None:
    x = rows()
    with pytest.warns(FutureWarning, match="overwrite is deprecated"):
        result = torch.ops.spyre.overwrite(BLOCK.to("spyre"), x, [0], [1])
    assert result is None
    assert x.cpu().tolist() == WANTED


def test_overwrite_f_leaves_its_operand_alone_eagerly_and_compiled() -> None:
    def call(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.ops.spyre.overwrite_f(values, x, [0, 1], [2, 1])

    x, values = rows(), BLOCK[:, :1].to("spyre")
    wanted = [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    with spyre_emulator.record() as recording:
        assert call(x, values).cpu().tolist() == wanted
    assert [(v.op, v.state) for v in recording.ops] == [("spyre.overwrite_f.default", "spyre_enabled")]
    assert torch.compile(call, backend="spyre")(x, values).cpu().tolist() == wanted
    assert x.cpu().tolist() == [[0.0, 0.0]] * 3


def test_a_block_beyond_the_end_is_refused() -> None:
    with pytest.raises(IndexError, match=r"1 at offset 3 of dimension 0 do not fit into \(3, 2\)"):
        torch.ops.spyre.overwrite_f(BLOCK.to("spyre"), rows(), [0], [3])
