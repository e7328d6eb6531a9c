"""Plans to read: one line, or one JSON object, per step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from spyre_emulator import division, layout, private
from spyre_emulator.dtypes import device_format
from spyre_emulator.estimate import estimate
from spyre_emulator.steps import Step, operands_of, results_of

if TYPE_CHECKING:
    from spyre_emulator.plan import Plan


def _tensor(value: torch.Tensor) -> dict[str, Any]:
    shape = tuple(private.size_hint(s) for s in value.shape)
    strides = tuple(private.size_hint(s) for s in value.stride())
    described: dict[str, Any] = {
        "shape": shape,
        "strides": strides,
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": value.device.type,
    }
    if value.device.type == private.DEVICE_NAME:
        placed = layout.default_layout(shape, strides, value.dtype)
        described |= {
            "device_size": placed.device_size,
            "stride_map": placed.stride_map,
            "device_bytes": layout.device_bytes(shape, value.dtype),
        }
    return described


def _step(step: Step) -> dict[str, Any]:
    operands = operands_of(step.node)
    results = [v for v in results_of(step.node) if isinstance(v, torch.Tensor)]
    described: dict[str, Any] = {
        "name": step.node.name,
        "op": str(step.node.target),
        "kind": step.kind,
        "operands": [_tensor(v) for v in operands],
        "results": [_tensor(v) for v in results],
    }
    if step.kind in ("native", "fallback"):
        cost = estimate(step.node.target, operands, results)
        described["restickifies"] = [r._asdict() | {"dtype": str(r.dtype)} for r in step.restickifies]
        described["estimate"] = cost._asdict()
        if results and results[0].dim():
            stick = device_format(results[0].dtype).elements_per_stick
            described["cores"] = division.cores_for(-(-private.size_hint(results[0].shape[-1]) // stick))
    return described


def as_dict(plan: Plan) -> dict[str, Any]:
    """Facts and steps of `plan`; the ``estimate`` entries are estimates, see `spyre_emulator.estimate`."""
    steps = [_step(s) for s in plan.steps]
    seconds = sum(s["estimate"]["seconds"] for s in steps if "estimate" in s)
    return {"facts": plan.facts._asdict(), "estimated_seconds": seconds, "steps": steps}


def as_json(plan: Plan) -> str:
    """`as_dict` as JSON."""
    return json.dumps(as_dict(plan), indent=1)


def as_text(plan: Plan) -> str:
    """One line per step: kind, result, operator, operands, cores, restickifies, estimated microseconds."""
    described = as_dict(plan)
    lines = [
        "plan: " + ", ".join(f"{k} {v}" for k, v in described["facts"].items()),
        f"estimated device time {described['estimated_seconds'] * 1e6:.1f} us (a roofline, not a measurement)",
    ]
    for s in described["steps"]:
        operands = ", ".join(f"{t['dtype']}{list(t['shape'])}" for t in s["operands"])
        results = ", ".join(f"{t['dtype']}{list(t['shape'])}" for t in s["results"])
        extra = ""
        if "estimate" in s:
            extra = f"  [{s.get('cores', 1)} cores, {s['estimate']['seconds'] * 1e6:.1f} us"
            extra += f", {len(s['restickifies'])} restickify]" if s["restickifies"] else "]"
        lines.append(f"{s['kind']:8s} {s['name']} = {s['op']}({operands}) -> {results}{extra}")
    return "\n".join(lines)
