"""Limits of the rule for each task and dtype. The data behind them is in docs/verdict.md."""

from __future__ import annotations

from harness.records import Case, Dtype, Task, Tolerance

MODULE = "module:"
"""Prefix of outputs of modules that ran under the reference's inputs."""

TIE_ULPS = 2.0
"""A margin of so many ULP is a near tie without a control: each of two logits is rounded once when it is
made and once more when it is stored."""

SPREAD = 2.0
"""Three standard deviations of the logarithm of one position's error ratio (0.7 on honest devices)."""

_FLOAT16 = Tolerance(
    error_ratio=4,
    typical_ratio=2.75,
    module_ratio=6,
    relative_l2=0.05,
    vector_l2=0.1,
    cosine=0.99,
    kl=0.01,
    token_disagreement=0,
)
_BFLOAT16 = _FLOAT16.model_copy(
    update={"error_ratio": 3.0, "typical_ratio": 2.0, "module_ratio": 4.0}
    | {"relative_l2": 0.1, "vector_l2": 0.3, "kl": 0.05}
)
_FLOAT32 = _FLOAT16.model_copy(update={"relative_l2": 1e-3, "vector_l2": 1e-2, "cosine": 0.99999, "kl": 1e-4})

DEFAULTS: dict[tuple[Task, Dtype], Tolerance] = {
    (task, dtype): limits
    for task in Task
    for dtype, limits in (
        (Dtype.FLOAT16, _FLOAT16),
        (Dtype.BFLOAT16, _BFLOAT16),
        (Dtype.FLOAT32, _FLOAT32),
    )
}


def limits_for(case: Case) -> Tolerance:
    """Return the limits in force: the row's, and the defaults where the row sets none."""
    own = {name: value for name, value in case.tolerance.model_dump().items() if value is not None}
    return DEFAULTS[case.task, case.dtype].model_copy(update=own)
