"""How sums are accumulated, per class of operators: width, lanes and rounding of the running sum.

The device's accumulators are not public. Compute pairs name float32 for matmul. Sums of 16-bit data are modelled as one
16-bit lane per element of a stick, rounded like all arithmetic; that predicts the published ``sum`` figure of
torch-spyre#2400. The mean of squares is calibrated on the two published RMSNorm errors
(hf-adapters:docs/spyre-numerical-findings.md), which no single setting meets; see docs/emulator.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Literal

import torch

from spyre_emulator import layout, numerics, settings

Tensor = torch.Tensor
OperatorClass = Literal["matmul", "sum", "mean", "softmax", "moments"]


@dataclasses.dataclass(frozen=True)
class Accumulation:
    """The running sum of one class of operators."""

    width: Literal["fp32", "dl16"] = "fp32"
    lanes: int = 1
    """Independent running sums, a power of two, added pairwise at the end; ignored for fp32."""
    rounding: settings.Rounding = "nearest-even"

    def __post_init__(self) -> None:
        if self.lanes < 1 or self.lanes & (self.lanes - 1):
            raise settings.SettingError(f"lanes={self.lanes}: must be a power of two")
        if self.rounding not in numerics.RULES:
            raise settings.SettingError(f"rounding={self.rounding!r}: must be one of {', '.join(numerics.RULES)}")

    def __str__(self) -> str:
        return "fp32" if self.width == "fp32" else f"{self.width}/{self.lanes} lanes/{self.rounding}"


DEFAULTS: dict[OperatorClass, Accumulation] = {
    "matmul": Accumulation("fp32"),
    "sum": Accumulation("dl16", 64, "nearest-up"),
    "mean": Accumulation("dl16", 8, "truncate"),
    "softmax": Accumulation("dl16", 64, "nearest-up"),
    "moments": Accumulation("fp32"),
}
current: dict[OperatorClass, Accumulation] = dict(DEFAULTS)
"""``matmul`` is fixed at float32: chunked accumulation of the array is not public and not modelled."""


@contextlib.contextmanager
def accumulating(**classes: Accumulation) -> Iterator[None]:
    """Other accumulations inside the context, by operator class."""
    for name, accumulation in classes.items():
        if name not in DEFAULTS:
            raise settings.SettingError(f"no operator class {name!r}: must be one of {', '.join(DEFAULTS)}")
        if name == "matmul" and accumulation.width != "fp32":
            raise settings.SettingError("matmul accumulates in float32; other widths are not modelled")
    before = dict(current)
    current.update(classes)  # type: ignore[arg-type]
    try:
        yield
    finally:
        current.update(before)


def total(x: Tensor, dims: list[int], keepdim: bool, kind: OperatorClass) -> Tensor:
    """The sum of float32 `x` over `dims` as operators of class `kind` accumulate it; not rounded at the end."""
    accumulation = current[kind]
    if accumulation.width == "fp32" or x.numel() == 0:
        return x.sum(dims, keepdim=keepdim)
    reduced = sorted(d % x.dim() for d in dims) if dims else list(range(x.dim()))
    kept = [d for d in range(x.dim()) if d not in reduced]
    length = math.prod(x.shape[d] for d in reduced)
    rows = x.permute(*kept, *reduced).reshape(-1, length).contiguous()
    if settings.current.nan_padding:  # read whole sticks, as the device does, and mask their padding lanes
        rows = layout.mask_padding(layout.padded_to_sticks(rows.clone(), torch.float16), length, 0.0)
    sums = _row_sums(rows, accumulation).reshape([x.shape[d] for d in kept])
    if keepdim:
        sums = sums.reshape([1 if d in reduced else n for d, n in enumerate(x.shape)])
    return sums


def _row_sums(rows: Tensor, accumulation: Accumulation) -> Tensor:
    rule = numerics.RULES[accumulation.rounding]
    if numerics.has_native_kernel():
        return numerics.sum_rows(rows, accumulation.lanes, rule)
    lanes = accumulation.lanes
    count, length = rows.shape
    steps = -(-length // lanes)
    padded = torch.nn.functional.pad(rows, (0, steps * lanes - length)).view(count, steps, lanes)
    running = torch.zeros(count, lanes, dtype=torch.float32, device="cpu")
    for step in range(steps):
        running = numerics.round_(running + padded[:, step], rule)
    while lanes > 1:
        lanes //= 2
        running = numerics.round_(running[:, :lanes] + running[:, lanes:], rule)
    return running[:, 0].contiguous()
