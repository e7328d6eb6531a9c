from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from harness.localize import Device, Search, check_variants, first_wrong
from harness.records import Cause, Localization
from spyre_emulator import kernels
from spyre_emulator.kernels import OpCall
from tests.localize.tiny import FLOOR, Block, comparison, forward, models

pytestmark = pytest.mark.filterwarnings("ignore::spyre_emulator.FallbackWarning")
SPYRE = torch.device("spyre", 0)


def search(reference: torch.nn.Module, candidate: torch.nn.Module, *, compiled: bool = False) -> Search:
    compile_ = (lambda model: torch.compile(model, dynamic=False)) if compiled else None
    device = Device(SPYRE, compile_, lambda call: None)
    return first_wrong("case", reference, candidate, forward, comparison, device, floor=FLOOR)


def located(found: Localization) -> tuple[str | None, str | None, Cause | None]:
    return (found.module.name if found.module else None, found.op.op if found.op else None, found.cause)


@contextmanager
def scaled(op: str, when: Callable[[OpCall], bool]) -> Iterator[None]:
    """Make an op's results 5% too large on the device."""

    def hook(call: OpCall) -> Any:
        return call.proceed() * 1.05 if when(call) else call.proceed()

    kernels.add_hook(op, hook)
    try:
        yield
    finally:
        kernels.remove_hook(op, hook)


def test_a_clean_device_has_no_wrong_module() -> None:
    found = search(*models("spyre")).localization
    assert located(found) == (None, None, None)
    assert found.sentence.startswith("no module is out of proportion by itself (worst: ")
    assert len(found.evidence.errors) == 9


def test_a_wrong_op_inside_a_module_is_named_with_its_operands() -> None:
    with scaled("aten.addmm.default", lambda call: call.args[2].shape == (128, 64)):
        found = search(*models("spyre")).localization
    assert located(found) == ("blocks.0.down", "aten.addmm.default", Cause.OP)
    assert found.op is not None
    assert [operand.shape for operand in found.op.operands] == [(64,), (10, 128), (128, 64)]
    assert found.modules_wrong == 2


def test_an_op_that_is_wrong_in_16_bits_alone_is_a_matter_of_dtype() -> None:
    with scaled("aten.tanh.default", lambda call: call.dtypes[0] == torch.float16):
        found = search(*models("spyre")).localization
    assert located(found) == ("blocks.0 (into down)", "aten.tanh.default", Cause.DTYPE)


def test_an_op_that_is_wrong_for_some_strides_alone_is_a_matter_of_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    def strided(self: Block, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden)).transpose(0, 1).mul(2).transpose(0, 1))

    monkeypatch.setattr(Block, "forward", strided)
    with scaled("aten.mul.Tensor", lambda call: not call.args[0].is_contiguous()):
        found = search(*models("spyre")).localization
    assert located(found) == ("blocks.0 (into down)", "aten.mul.Tensor", Cause.LAYOUT)
    assert found.op is not None
    assert found.op.operands[0].strides == (128, 640, 1)


def test_a_wrong_parameter_on_the_device_is_no_fault_of_an_op() -> None:
    reference, candidate = models("spyre")
    with torch.no_grad():
        candidate.blocks[1].up.weight.mul_(1.05)
    found = search(reference, candidate).localization
    assert located(found) == ("blocks.1.up", None, Cause.WEIGHTS)
    assert found.parameter == "weight"


def test_an_op_that_raises_is_named_with_its_module() -> None:
    def hook(call: OpCall) -> Any:
        raise NotImplementedError("Could not run 'aten::tanh' with arguments from the 'spyre' backend")

    kernels.add_hook("aten.tanh.default", hook)
    try:
        found = search(*models("spyre")).localization
    finally:
        kernels.remove_hook("aten.tanh.default", hook)
    assert located(found) == ("blocks.0", "aten.tanh.default", Cause.OP)
    assert found.op is not None
    assert found.op.error == "Could not run 'aten::tanh' with arguments from the 'spyre' backend"


def test_what_is_wrong_only_when_compiled_is_a_matter_of_fusion() -> None:
    with scaled("aten.tanh.default", lambda call: call.mode == "compiled"):
        result = search(*models("spyre"), compiled=True)
    assert located(result.localization) == ("blocks.0", "aten.tanh.default", Cause.FUSION)
    assert result.fusion is not None
    assert result.fusion.error == pytest.approx(0.05, rel=0.02)


def test_each_variant_is_run_alone() -> None:
    _, candidate = models("spyre")
    with scaled("aten.tanh.default", lambda call: True):
        checks = check_variants(candidate, forward, SPYRE, floor=FLOOR, limit=8, seconds=60)
    wrong = {(op.op, op.operands[0].shape) for op, bad in checks if bad}
    assert wrong == {("aten.tanh.default", (2, 5, 128))}
    assert {op.op for op, bad in checks if not bad} >= {"aten.addmm.default", "aten.mul.Tensor", "aten.add.Tensor"}
