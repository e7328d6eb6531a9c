"""From a failing case to the first wrong module, and from there to the first wrong op."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from harness.localize.boundaries import watched
from harness.localize.companion import Boundary
from harness.localize.fusion import Compile, Fusion, find_fusion
from harness.localize.modules import Compare, Forward, Inspect, modules, wrong
from harness.localize.numbers import relative
from harness.localize.ops import Execution, Inspection, LastOp, cause_of, described, repeat
from harness.records import Cause, Localization, ModuleError, ModuleEvidence, OpError, OpState

LIMIT = 8.0
"""Ratio of a stretch's own error to the control's above which it is out of proportion. Honest DLFloat16 devices
reach 5.3 at the worst of the 1,800 stretches of four models; a single decode step spreads most."""

StateOf = Callable[[Callable[[], object]], OpState | None]
"""How the device treats the op that a call runs."""


@dataclass(frozen=True)
class Device:
    """What the search needs to know of the device."""

    place: torch.device
    compile: Compile | None
    """For compiled cases."""
    state_of: StateOf


@dataclass(frozen=True)
class Search:
    """A localisation, and what a reproducer is made of."""

    localization: Localization
    execution: Execution | None = None
    fusion: Fusion | None = None


def first_wrong(
    case: str,
    reference: nn.Module,
    candidate: nn.Module,
    forward: Forward,
    compare: Compare,
    device: Device,
    *,
    floor: float,
    limit: float = LIMIT,
    seconds: float = 600.0,
    evidence: ModuleEvidence | None = None,
) -> Search:
    """Return the first stretch whose own error is out of proportion and the first wrong op inside it.

    ``evidence`` of an earlier walk spares this one its first half. A compiled case whose modules are all
    right op by op is searched for the part of its graph that is wrong when compiled.
    """
    began = time.monotonic()
    raised = _raised(case, candidate, forward, limit)
    if raised is not None:
        return raised
    sides = _Sides(case, reference, candidate, forward, compare, device, floor, limit)
    if evidence is None or not evidence.errors:
        evidence = modules(reference, candidate, forward, compare, floor=floor, seconds=seconds / 2).evidence
    bad = list(wrong(evidence, floor, limit))
    left = seconds - (time.monotonic() - began)
    found = sides.inside(bad[0], max(seconds / 10, left)) if bad else sides.compiled(evidence, left)
    whole = {"evidence": evidence, "modules_wrong": len(bad), "seconds": time.monotonic() - began}
    return replace(found, localization=found.localization.model_copy(update=whole))


@dataclass(frozen=True)
class _Sides:
    """What is run against what, and what counts as out of proportion."""

    case: str
    reference: nn.Module
    candidate: nn.Module
    forward: Forward
    compare: Compare
    device: Device
    floor: float
    limit: float

    def inside(self, first: ModuleError, seconds: float) -> Search:
        """The first wrong op, or parameter, of the first stretch out of proportion."""
        where = _where(first, self.floor)
        parameter = _wrong_parameter(self.reference, self.candidate, first.module, self.floor * self.limit)
        if first.part == "module" and parameter is not None:
            text = f"{where}; its parameter {parameter} is not the checkpoint's on the device"
            return Search(self._told(text, module=first, cause=Cause.WEIGHTS, parameter=parameter))
        inspection = Inspection(self.device.place, self.floor, self.limit)
        at = Inspect(first.module, first.call, inspection)
        modules(
            self.reference,
            self.candidate,
            self.forward,
            self.compare,
            floor=self.floor,
            seconds=seconds,
            inspect=at,
        )
        if inspection.first is None:
            text = f"{where}; each of the {inspection.checked} ops that the CPU can check is right alone"
            return Search(self._told(text, module=first, cause=Cause.UNKNOWN))
        op, cause = _examine(inspection.first, self.device, self.floor, self.limit)
        return Search(self._told(f"{where}; {_what(op, cause)}", module=first, op=op, cause=cause), inspection.first[0])

    def compiled(self, evidence: ModuleEvidence, seconds: float) -> Search:
        """The part of the graph that is wrong when compiled only; what can be said where there is none."""
        fusion = None
        if self.device.compile is not None and seconds > 0:
            fusion = find_fusion(self.candidate, self.forward, self.device.compile, floor=self.floor, seconds=seconds)
        if fusion is None:
            return Search(self._told(_none(evidence, self.floor, self.limit)))
        op = described(fusion.execution, (fusion.error, None))
        first = ModuleError(
            name=fusion.module, module=fusion.module, part="between", call=fusion.graph, relative_l2=fusion.error
        )
        text = (
            f"{fusion.module or 'the model'} is right op by op and wrong compiled: from {_op(op)} on, compiled values "
            f"differ from the op-by-op ones by {fusion.error:.3g}"
        )
        return Search(self._told(text, module=first, op=op, cause=Cause.FUSION), fusion.execution, fusion)

    def _told(self, sentence: str, **found: Any) -> Localization:
        """The record's part that says where and what; `first_wrong` adds the rest."""
        return Localization(case=self.case, sentence=sentence, limit=self.limit, **found)


def _raised(case: str, candidate: nn.Module, forward: Forward, limit: float) -> Search | None:
    """Where the candidate raises op by op; None when it runs through."""
    stack: list[str] = []

    def follow(boundary: Boundary) -> None:
        if boundary.kind == "enter":
            stack.append(boundary.path)
        else:
            stack.pop()

    last = LastOp()
    try:
        with torch.no_grad(), watched(candidate, follow), last:
            forward(candidate)
    except (RuntimeError, NotImplementedError) as error:
        execution = last.execution()
        text = str(error).splitlines()[0]
        path = stack[-1] if stack else ""
        op = None if execution is None else described(execution, None).model_copy(update={"error": text})
        sentence = f"{path or 'the model'} raises {type(error).__name__}" + (f" in {_op(op)}" if op else "")
        found = ModuleError(name=path or "model", module=path, part="module")
        localization = Localization(
            case=case, sentence=f"{sentence}: {text}", module=found, op=op, cause=Cause.OP, modules_wrong=1, limit=limit
        )
        return Search(localization, execution)
    return None


def _examine(
    first: tuple[Execution, tuple[float | None, float | None]], device: Device, floor: float, limit: float
) -> tuple[OpError, Cause]:
    """The record of a wrong op and the cause, found by repeating it alone."""
    execution, measured = first
    op = described(execution, measured)
    cause = cause_of(execution, device.place, floor, limit)
    state = device.state_of(lambda: repeat(execution, device.place))
    if cause is Cause.OP and state is OpState.CPU_FALLBACK:
        cause = Cause.FALLBACK
    return op.model_copy(update={"state": state}), cause


def _wrong_parameter(reference: nn.Module, candidate: nn.Module, path: str, limit: float) -> str | None:
    """The first parameter or buffer of a module that is not the reference's, beyond rounding."""
    mine, theirs = candidate.get_submodule(path), reference.get_submodule(path)
    expected = {**dict(theirs.named_parameters(recurse=False)), **dict(theirs.named_buffers(recurse=False))}
    found = {**dict(mine.named_parameters(recurse=False)), **dict(mine.named_buffers(recurse=False))}
    for name, value in expected.items():
        if name not in found or found[name].shape != value.shape:
            return name
        error, odd = relative(value.detach(), found[name].detach().cpu())
        if odd or (error or 0.0) > limit:
            return name
    return None


def _where(error: ModuleError, floor: float) -> str:
    """The first stretch in words."""
    call = f", call {error.call}" if error.call else ""
    if error.mismatch:
        return f"{error.name}{call} differs in structure: {error.mismatch}"
    if error.nonfinite:
        return f"{error.name}{call} differs in {error.nonfinite} non-finite values"
    if error.unequal is not None:
        return f"{error.name}{call} differs in {error.unequal} of its integers"
    ratio = error.ratio(floor)
    times = f", {ratio:.3g} times the control's" if ratio is not None else ""
    return f"{error.name}{call} adds a relative error of {error.relative_l2:.3g} by itself{times}"


def _what(op: OpError, cause: Cause) -> str:
    """The wrong op in words."""
    why = {
        Cause.OP: "wrong for these operands in any layout",
        Cause.LAYOUT: "wrong for these strides and offsets, right for contiguous operands",
        Cause.DTYPE: "wrong in this dtype, right in float32",
        Cause.FALLBACK: "wrong where the device hands it to the CPU",
    }[cause]
    return f"{_op(op)} is {why}"


def _op(op: OpError) -> str:
    operands = ", ".join(f"{o.dtype}{list(o.shape)}" for o in op.operands)
    return f"{op.op}({operands})"


def _none(evidence: ModuleEvidence, floor: float, limit: float) -> str:
    """What can be said when no stretch is out of proportion."""
    known = [(error.ratio(floor) or 0.0, error.name) for error in evidence.errors]
    if not known:
        return f"no module could be compared: {evidence.skipped or 'the model ran none'}"
    ratio, name = max(known)
    rest = f"; {evidence.skipped}" if evidence.skipped else ""
    return f"no module is out of proportion by itself (worst: {name} with {ratio:.3g}, limit {limit:g}){rest}"
