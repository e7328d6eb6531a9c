"""Generates the flat Python function of a plan: one line per step over shadows, frees at the last use."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch

from spyre_emulator import kernels, private, settings
from spyre_emulator.dispatch import host_argument
from spyre_emulator.dtypes import DLFLOAT
from spyre_emulator.memory import codes_of, readable, shadow, wrap
from spyre_emulator.nodes import Node, is_on_device, logical_dtypes, operand_dtypes, value_of
from spyre_emulator.numerics import round_
from spyre_emulator.steps import Step

if TYPE_CHECKING:
    from spyre_emulator.plan import Plan

Run = Callable[[list[Any]], list[Any]]


class Code:
    """Source and callable of a plan, bound to the kernel table as it stands (hooks included)."""

    def __init__(self, plan: Plan) -> None:
        self._inputs = plan.inputs
        self._slots = {n: i for i, n in enumerate(plan.graph.graph.nodes)}
        self._names: dict[str, Any] = {"shadow": shadow, "readable": readable, "weight": weight, "wrap": wrap}
        self._names["round_"] = round_
        self._names["round_all"] = kernels.round_results
        lines = ["def run(a):"]
        for i, node in enumerate(plan.inputs):
            lines.append(f"  v{self._slots[node]} = {_reader(node).format(i)}")
        for node, attribute in plan.attributes.items():
            with private.without_modes():
                self._names[f"k{self._slots[node]}"] = host_argument(attribute)
            lines.append(f"  v{self._slots[node]} = k{self._slots[node]}")
        for step in plan.steps:
            lines.extend(self._lines(step))
        lines.append(f"  return [{', '.join(self._result(o) for o in plan.outputs)}]")
        self.source = "\n".join(lines)
        exec(compile(self.source, "<spyre plan>", "exec"), self._names)  # noqa: S102 - the source is made above
        self.run: Run = self._names["run"]

    def _lines(self, step: Step) -> list[str]:
        slot = self._slots[step.node]
        hooked = _is_hooked(step)
        self._names[f"f{slot}"] = _hooked_call(step) if hooked else step.call
        arguments = [self._reference(a) for a in step.args]
        arguments += [f"{k}={self._reference(v)}" for k, v in step.kwargs.items()]
        lines = [f"  v{slot} = f{slot}({', '.join(arguments)})"]
        if step.rounds and not hooked:
            if isinstance(value_of(step.node), torch.Tensor):
                lines.append(f"  round_(v{slot})")
            else:
                self._names[f"d{slot}"] = logical_dtypes(step.node)
                lines.append(f"  round_all(v{slot}, d{slot})")
        if step.frees:
            lines.append("  " + " = ".join(f"v{self._slots[n]}" for n in step.frees) + " = None")
        return lines

    def _reference(self, a: Any) -> str:
        if isinstance(a, Node):
            return f"v{self._slots[a]}"
        if isinstance(a, list):
            return "[" + ", ".join(self._reference(x) for x in a) + "]"
        if isinstance(a, tuple):
            return "(" + "".join(self._reference(x) + ", " for x in a) + ")"
        if a is None or isinstance(a, (bool, int, str)) or (isinstance(a, float) and math.isfinite(a)):
            return repr(a)
        name = f"c{len(self._names)}"
        self._names[name] = a
        return name

    def _result(self, output: Any) -> str:
        if not isinstance(output, Node):
            return repr(output)
        value, slot = value_of(output), self._slots[output]
        if output.op == "placeholder":
            return f"a[{self._inputs.index(output)}]"
        if not is_on_device(value):
            return f"v{slot}"
        self._names[f"t{slot}"] = value.dtype
        return f"wrap(v{slot}, t{slot})"


def weight(tensor: torch.Tensor) -> torch.Tensor:
    """Codes of a compressed weight, or its shadow."""
    codes = codes_of(tensor)
    return shadow(tensor) if codes is None else codes


def _reader(node: Node) -> str:
    """How a graph input is read: to be written, as a weight that may stay codes, or just read."""
    if not is_on_device(value_of(node)):
        return "a[{}]"
    if any(user.target is torch.ops.aten.copy_.default and user.args[0] is node for user in node.users):
        return "shadow(a[{}])"
    return "weight(a[{}])" if _stays_packed(node) else "readable(a[{}])"


def _stays_packed(node: Node) -> bool:
    """Whether every reader of a 16-bit graph input takes codes, directly or through a transpose."""
    if value_of(node).dtype not in DLFLOAT or not node.users:
        return False
    for user in node.users:
        if user.target is torch.ops.aten.t.default:
            if not _stays_packed(user):
                return False
        elif not isinstance(user.target, private.OpOverload) or kernels.is_hooked(user.target):
            return False
        else:
            positions = kernels.lookup(user.target).packed
            if not positions or [i for i, a in enumerate(user.args) if a is node] != list(positions):
                return False
    return True


def _is_hooked(step: Step) -> bool:
    if settings.current.nan_padding and step.kind in ("native", "fallback"):
        return True
    return step.kind in ("native", "fallback", "view") and kernels.is_hooked(cast("Any", step.node.target))


def _hooked_call(step: Step) -> Callable[..., Any]:
    kernel = kernels.lookup(cast("Any", step.node.target))
    outcome = kernels.outcome(kernel, operand_dtypes(step.node), logical_dtypes(step.node))
    dtypes = tuple(v.dtype if isinstance(v := value_of(a), torch.Tensor) else None for a in step.node.args)

    def call(*args: Any, **kwargs: Any) -> Any:
        return kernels.run_hooked(kernel, outcome, args, kwargs, dtypes, "compiled")

    return call
