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

MODULE_SPREAD = 1.0
"""The same for a module: its inputs are the reference's, so its ratio is its own (0.38 for attention, which
varies most)."""

_COMMON = Tolerance(
    error_ratio=4,
    typical_ratio=2.75,
    worst_ratio=64,
    module_ratio=6,
    relative_l2=0.05,
    vector_l2=0.1,
    cosine=0.99,
    kl=0.01,
    token_disagreement=0,
)

_BY_TASK: dict[Task, dict[str, float]] = {
    Task.CAUSAL_LM: {},
    Task.EMBEDDING: {"error_ratio": 4.5, "typical_ratio": 4.5, "worst_ratio": 12.0},
    Task.MASKED_LM: {"error_ratio": 8.0, "typical_ratio": 5.0, "worst_ratio": 16.0},
    Task.SEQUENCE_CLASSIFICATION: {"error_ratio": 16.0, "typical_ratio": 10.0},
}
"""Causal language models have steps, which widen their limits. The others are judged as a whole: an
embedding's errors are many and independent, those of a few class logits move together."""

_BY_DTYPE: dict[Dtype, dict[str, float]] = {
    Dtype.FLOAT16: {},
    Dtype.BFLOAT16: {"relative_l2": 0.1, "vector_l2": 0.3, "kl": 0.05},
    Dtype.FLOAT32: {"relative_l2": 1e-3, "vector_l2": 1e-2, "cosine": 0.99999, "kl": 1e-4},
}

DEFAULTS: dict[tuple[Task, Dtype], Tolerance] = {
    (task, dtype): _COMMON.model_copy(update=_BY_TASK[task] | _BY_DTYPE[dtype]) for task in Task for dtype in Dtype
}
"""The limits of each task and dtype."""


def limits_for(case: Case) -> Tolerance:
    """Return the limits in force: the row's, and the defaults where the row sets none."""
    own = {name: value for name, value in case.tolerance.model_dump().items() if value is not None}
    return DEFAULTS[case.task, case.dtype].model_copy(update=own)
