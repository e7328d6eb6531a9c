"""Plans to read: one line, or one JSON object, per step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from spyre_emulator import private
from spyre_emulator.estimate import Estimate, estimate
from spyre_emulator.nodes import operand_nodes, operands_of, results_of
from spyre_emulator.propagation import Source
from spyre_emulator.steps import Step
from spyre_emulator.sticks import Restickify

if TYPE_CHECKING:
    from spyre_emulator.plan import Plan


def cost_of(plan: Plan, step: Step) -> Estimate:
    """The estimate of one step in the layouts and places that `plan` chose."""
    written = [_traffic(plan, s) for s in plan.layouts.sources.get(step.node, ())]
    traffic = sum(r.bytes for r in step.restickifies) + sum(written)
    asked = plan.layouts.requirements.get(step.node)
    for i, operand in enumerate(operand_nodes(step.node)):
        read = sum(_traffic(plan, s) for s in plan.layouts.sources.get(operand, ())[:1])
        access = asked.accesses[i] if asked is not None else None
        # Of what is indexed no more is read than comes out.
        traffic += min(read, sum(written)) if access is not None and access.at_random else read
    results = [v for v in results_of(step.node) if isinstance(v, torch.Tensor)]
    return estimate(step.node.target, operands_of(step.node), results, traffic)


def _traffic(plan: Plan, source: Source) -> int:
    """Device memory that a value takes part in the traffic with; none where it stays on the cores."""
    if plan.memory.places[source.buffer].where == "lx":
        return 0
    return source.view.device_bytes(plan.layouts.sticks[source.buffer])


def _tensor(plan: Plan, value: torch.Tensor, source: Source | None) -> dict[str, Any]:
    shape = tuple(private.size_hint(s) for s in value.shape)
    described: dict[str, Any] = {
        "shape": shape,
        "strides": tuple(private.size_hint(s) for s in value.stride()),
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": value.device.type,
    }
    if source is not None:
        stick = plan.layouts.sticks[source.buffer]
        placed = source.view.layout(stick)
        described |= {
            "stick_dimension": source.view.dimension(stick),
            "device_size": placed.device_size,
            "stride_map": placed.stride_map,
            "device_bytes": source.view.device_bytes(stick),
        }
    return described


def _restickify(r: Restickify) -> dict[str, Any]:
    return r._asdict() | {"dtype": str(r.dtype)}


def _step(plan: Plan, step: Step) -> dict[str, Any]:
    sources = plan.layouts.sources
    own = sources.get(step.node, [])
    results = [v for v in results_of(step.node) if isinstance(v, torch.Tensor)]
    described: dict[str, Any] = {
        "name": step.node.name,
        "op": str(step.node.target),
        "kind": step.kind,
        "operands": [
            _tensor(plan, n.meta["val"], next(iter(sources.get(n, [])), None)) for n in operand_nodes(step.node)
        ],
        "results": [_tensor(plan, v, own[i] if i < len(own) else None) for i, v in enumerate(results)],
    }
    places = [plan.memory.places[s.buffer] for s in own if s.buffer.node is step.node]
    if places:
        described["place"] = places[0]._asdict()
    if step.restickifies:
        described["restickifies"] = [_restickify(r) for r in step.restickifies]
    if step.kind in ("native", "fallback"):
        described.setdefault("restickifies", [])
        described["estimate"] = cost_of(plan, step)._asdict()
    division = plan.memory.divisions.get(step.node)
    if division is not None:
        described |= {"cores": division.cores, "splits": division.splits, "contracted_splits": division.contracted}
        described["working_set"] = plan.memory.working_sets[step.node]
    return described


def _inputs(plan: Plan) -> list[dict[str, Any]]:
    known = [(n, s) for n in plan.inputs for s in plan.layouts.sources.get(n, [])]
    return [{"name": n.name} | _tensor(plan, n.meta["val"], s) for n, s in known]


def as_dict(plan: Plan) -> dict[str, Any]:
    """Facts and steps of `plan`; the ``estimate`` entries are estimates, see `spyre_emulator.estimate`."""
    return {"facts": plan.facts._asdict(), "inputs": _inputs(plan), "steps": [_step(plan, s) for s in plan.steps]}


def as_json(plan: Plan) -> str:
    """`as_dict` as JSON."""
    return json.dumps(as_dict(plan), indent=1)


def _shown(t: dict[str, Any]) -> str:
    """``float16[3, 64*]``: the sticked dimension is starred; ``float16[3, 1]|`` has one element per stick."""
    stick = t.get("stick_dimension")
    sizes = ", ".join(f"{n}*" if d == stick else str(n) for d, n in enumerate(t["shape"]))
    sparse = "|" if "device_size" in t and stick is None and t["shape"] else ""
    return f"{t['dtype']}[{sizes}]{sparse}"


def _kilobytes(size: int) -> str:
    return f"{size / 1024:.1f} KB"


def _remarks(step: dict[str, Any]) -> str:
    remarks = []
    if "estimate" in step:
        remarks.append(f"{step['estimate']['seconds'] * 1e6:.1f} us")
    if "cores" in step:
        remarks.append(f"{step['cores']} cores")
    if "working_set" in step:
        remarks.append(f"{_kilobytes(step['working_set'])} a core")
    place = step.get("place")
    if place is not None:
        remarks.append(f"in {place['where']}" + (f": {place['reason']}" if place["where"] == "pool" else ""))
    for r in step.get("restickifies", ()):
        have, need = ("one per stick" if d is None else f"dimension {d}" for d in (r["have"], r["need"]))
        partial = "" if r["whole"] else " in partial sticks"
        remarks.append(f"restickify {list(r['shape'])} from {have}{partial} to {need}")
    return f"  [{', '.join(remarks)}]" if remarks else ""


def as_text(plan: Plan) -> str:
    """The facts, then one line per step: kind, result, operator, operands, cores, time, place, restickifies."""
    described = as_dict(plan)
    seconds = plan.facts.estimated_seconds
    lines = [
        "plan: " + ", ".join(f"{k} {v}" for k, v in described["facts"].items()),
        f"estimated device time {seconds * 1e6:.1f} us (a roofline, not a measurement)",
        "sticks run along the dimension with a star; | marks one element per stick",
    ]
    for s in described["steps"]:
        operands, results = (", ".join(map(_shown, s[which])) for which in ("operands", "results"))
        lines.append(f"{s['kind']:8s} {s['name']} = {s['op']}({operands}) -> {results}{_remarks(s)}")
    return "\n".join(lines)
