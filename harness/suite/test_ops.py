"""Ops recorded from models, each variant run alone on the device against the CPU. One item per op of a run."""

import pytest

from harness.opcheck import OpReport
from harness.records import OpState


def test_op(op_report: OpReport) -> None:
    """Fail when a variant is wrong alone; skip what the device does not run itself."""
    wrong = [use for use in op_report.failing if use.state is OpState.SPYRE_FAILED]
    if wrong:
        shown = "\n".join(
            f"  {[(one.dtype, one.shape, one.strides) for one in use.operands]}: "
            f"{use.error or f'relative L2 {use.relative_l2}, control {use.control}'}"
            for use in wrong[:10]
        )
        blocked = f"{len(op_report.blocked)} of {len(op_report.models)} models"
        pytest.fail(f"{op_report.op}: {len(wrong)} variants are wrong alone, in {blocked}\n{shown}", pytrace=False)
    if op_report.state is not OpState.SPYRE_ENABLED:
        pytest.skip(f"{op_report.state}: {len(op_report.failing)} variants")
