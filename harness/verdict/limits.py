"""Limits of the rule for each task and dtype. The data behind them is in docs/verdict.md."""

from __future__ import annotations

from harness.records import Case, Dtype, Task, Tolerance

MODULE = "module:"
"""Prefix of outputs of modules that ran under the reference's inputs."""

TIE_ULPS = 2.0
"""A margin of so many ULP is a near tie without a control: each of two logits is rounded once when it is
made and once more when it is stored."""

FLOOR = {
    "float16": 2.0**-10 / 12**0.5,
    "dlfloat16": 2.0**-9 / 12**0.5,
    "bfloat16": 2.0**-7 / 12**0.5,
    "float32": 1e-5,
}
"""Relative error that the control's format costs at least: half a ULP, uniform. float32 differs between
two right results by the order of sums rather than by rounding."""

_SIXTEEN_BIT = Tolerance(
    error_ratio=8,
    step_ratio=12,
    module_ratio=8,
    relative_l2=0.05,
    cosine=0.99,
    kl=0.01,
    token_disagreement=0,
)
_BFLOAT16 = _SIXTEEN_BIT.model_copy(update={"error_ratio": 4.0, "step_ratio": 6.0, "module_ratio": 4.0})
_FLOAT32 = _SIXTEEN_BIT.model_copy(update={"relative_l2": 1e-3, "cosine": 0.99999, "kl": 1e-4})

DEFAULTS: dict[tuple[Task, Dtype], Tolerance] = {
    (task, dtype): limits
    for task in Task
    for dtype, limits in (
        (Dtype.FLOAT16, _SIXTEEN_BIT),
        (Dtype.BFLOAT16, _BFLOAT16),
        (Dtype.FLOAT32, _FLOAT32),
    )
}


def limits_for(case: Case) -> Tolerance:
    """Return the limits in force: the row's, and the defaults where the row sets none."""
    own = {name: value for name, value in case.tolerance.model_dump().items() if value is not None}
    return DEFAULTS[case.task, case.dtype].model_copy(update=own)
