from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import fx

from harness.reproduce import Defect, reduced, write_graph, write_op
from harness.reproduce.reduce import Operands, packed

DEFECT = Defect(
    title="aten.cat.default on spyre",
    sentence="rotate_half by slices is wrong",
    device="spyre",
    limit=2e-3,
    numbers={"observed": 0.2, "control": 0.0},
    environment={"torch": torch.__version__},
)


def run(script: Path, fault: str) -> int:
    """Run a reproducer by itself: no harness on its path, the emulated device with or without a fault."""
    environment = {**os.environ, "SPYRE_EMULATOR_FAULTS": fault, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", script.name], cwd=script.parent, env=environment, timeout=120, check=False
    ).returncode


def slices() -> Operands:
    """The operands of rotate_half: two halves of a contiguous tensor."""
    torch.manual_seed(3)
    whole = torch.randn(1, 2, 3, 8).half()
    return ([whole[..., 4:], whole[..., :4]], -1), {}


def test_an_op_fails_with_its_fault_and_passes_without(tmp_path: Path) -> None:
    script = write_op(tmp_path / "repro", DEFECT, torch.ops.aten.cat.default, slices())
    assert sorted(path.name for path in script.parent.iterdir()) == [
        "environment.json",
        "inputs.safetensors",
        "numbers.json",
        "reproduce.py",
    ]
    assert len(script.read_text().splitlines()) < 60
    assert (run(script, "F06"), run(script, "")) == (1, 0)


def test_strides_and_offsets_are_stored_with_the_values(tmp_path: Path) -> None:
    operands = slices()
    script = write_op(tmp_path, DEFECT, torch.ops.aten.cat.default, operands)
    assert 'operand("x0", (1, 2, 3, 4), (48, 24, 8, 1), 4, device, dtype)' in script.read_text()
    stored = load_file(tmp_path / "inputs.safetensors")["x0"]
    assert torch.equal(stored.as_strided((1, 2, 3, 4), (48, 24, 8, 1), 4), operands[0][0][0])


def test_a_graph_is_run_compiled_against_itself(tmp_path: Path) -> None:
    def ops(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.mul.Tensor(torch.ops.aten.transpose.int(x, 1, 2), 2)

    torch.manual_seed(3)
    script = write_graph(tmp_path, DEFECT, fx.symbolic_trace(ops), [torch.randn(1, 64, 2, 64).half()])
    assert (run(script, "F04"), run(script, "")) == (1, 0)


def test_sizes_are_lowered_where_they_occur_together() -> None:
    torch.manual_seed(3)
    operands: Operands = ((torch.randn(24, 40), torch.randn(40, 16)), {})

    def fails(tried: Operands) -> bool:
        one, other = tried[0]
        return one.shape[1] == other.shape[0] and one.shape[0] >= 5

    small = reduced(operands, fails)[0]
    assert [tuple(one.shape) for one in small] == [(5, 1), (1, 1)]


def test_a_reduction_keeps_what_it_needs_of_the_layout() -> None:
    torch.manual_seed(3)
    operands: Operands = ((torch.randn(8, 6).t(),), {})
    small = reduced(operands, lambda tried: not tried[0][0].is_contiguous())[0][0]
    assert (tuple(small.shape), small.stride()) == ((1, 2), (1, 6))


@pytest.mark.parametrize("cut", [(slice(0, 1), slice(0, 2)), (slice(0, 3), slice(0, 3))])
def test_packed_copies_have_no_gaps_and_the_same_values(cut: tuple[slice, slice]) -> None:
    whole = torch.arange(48.0).reshape(6, 8).t()[:, 2:]
    part = whole[cut]
    made = packed(part, like=whole)
    assert torch.equal(made, part)
    assert (made.storage_offset(), sorted(made.stride())[0]) == (whole.storage_offset(), 1)
