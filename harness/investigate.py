"""Inside a process: where a case first goes wrong, and the folder that reproduces it alone."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from harness import apart, compare, localize, reproduce, targets
from harness.isolate.child import Marker
from harness.localize import Device, Execution, Fusion, Search
from harness.localize.fusion import ROUNDINGS, shrunk
from harness.localize.ops import excess, repeat
from harness.records import Cause, Dtype, LocalizeDone, LocalizeWork, Mode, OpState, Stage
from harness.subject import drilled, forced_tokens, load, number_format, question_of, run, scale

STATES = (OpState.NOT_IMPLEMENTED, OpState.SPYRE_FAILED, OpState.CPU_FALLBACK, OpState.SPYRE_ENABLED)
"""The gravest first."""


def find_first_wrong(mark: Marker, request: str) -> LocalizeDone:
    """Search a case and, where asked, write its reproducer."""
    work = LocalizeWork.model_validate_json(request)
    case = work.case
    mark(Stage.LOAD)
    question = question_of(case, work.checkpoint)
    candidate = load(work.checkpoint, question.workload, case.dtype).model
    reference = load(work.checkpoint, question.workload, Dtype.FLOAT32).model
    forced = forced_tokens(Path(work.reference_folder))
    mark(Stage.PLACE)
    target = targets.get(case.target)
    place = torch.device("cpu") if drilled(mark, "cpu") else target.device()
    candidate = candidate.to(place)
    scale(mark, candidate)
    mark(Stage.RUN)  # the longest of the limits: a search runs the model several times
    formats = (number_format(case, place), case.dtype.value)
    noise = compare.number_format(formats[1]).noise
    short = question.shorter()

    def forward(model: torch.nn.Module) -> object:
        plain = model.get_submodule("_orig_mod") if hasattr(model, "_orig_mod") else model
        return run(short, plain, model, forced)

    search = localize.first_wrong(
        case.id,
        reference,
        candidate,
        forward,
        apart.comparator(*formats),
        Device(place, target.compile if case.mode is Mode.COMPILED else None, lambda call: _state(target, call)),
        floor=noise,
        seconds=work.seconds,
        evidence=work.evidence,
    )
    why = None
    if work.reproducer is not None:
        why = write_reproducer(Path(work.reproducer), search, place, noise, target.compile)
    return LocalizeDone(localization=search.localization, reproducer=why)


def write_reproducer(
    out: Path, search: Search, place: torch.device, floor: float, compile_: Callable[..., Any]
) -> str | None:
    """Write the folder that shows a localisation's defect alone; return why that is impossible, else None."""
    found = search.localization
    if search.fusion is not None:
        return _write_fusion(out, search.fusion, found.sentence, place, floor, compile_)
    if found.cause is Cause.WEIGHTS:
        return "the parameters on the device differ from the checkpoint's; no op alone shows that"
    if search.execution is None:
        return f"there is no op to reproduce: {found.sentence}"
    return _write_op(out, search.execution, found.sentence, place, floor)


def _write_op(out: Path, execution: Execution, sentence: str, place: torch.device, floor: float) -> str | None:
    op = execution.op

    def fails(operands: tuple[tuple[Any, ...], dict[str, Any]]) -> bool:
        tried = Execution(op, *operands)
        try:
            expected = tried.on_cpu()
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
            return False
        if expected is None or not any(one.numel() for one in expected):
            return False
        try:
            return excess(repeat(tried, place), floor) > localize.LIMIT
        except (RuntimeError, NotImplementedError):
            return True

    whole = (execution.args, execution.kwargs)
    if not fails(whole):
        return f"{op} is right with these operands when it runs alone: the defect needs what runs before it"
    smallest = reproduce.reduced(whole, fails)
    error, control = _numbers(Execution(op, *smallest), place)
    defect = reproduce.Defect(
        title=f"{op} on {place.type}",
        sentence=sentence,
        device=place.type,
        limit=localize.LIMIT * math.hypot(control or 0.0, floor),
        numbers={"observed": error, "control": control, "sentence": sentence},
        environment=environment(place),
    )
    reproduce.write_op(out, defect, op, smallest)
    return None


def _numbers(execution: Execution, place: torch.device) -> tuple[float | None, float | None]:
    try:
        return repeat(execution, place) or (None, None)
    except (RuntimeError, NotImplementedError):
        return (None, None)


def _write_fusion(
    out: Path, fusion: Fusion, sentence: str, place: torch.device, floor: float, compile_: Callable[..., Any]
) -> str | None:
    graph, args, error = shrunk(fusion, compile_, ROUNDINGS * floor)
    defect = reproduce.Defect(
        title=f"Right op by op on {place.type}, wrong compiled",
        sentence=sentence,
        device=place.type,
        limit=ROUNDINGS * floor,
        numbers={"observed": error, "sentence": sentence},
        environment=environment(place),
    )
    reproduce.write_graph(out, defect, graph, [one.cpu() if isinstance(one, torch.Tensor) else one for one in args])
    return None


def environment(place: torch.device) -> dict[str, str]:
    """What a reproducer was made with."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "device": str(place)}
    for name in ("torch", "torch_spyre", "spyre-conformance"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _state(target: targets.Target, call: Callable[[], object]) -> OpState | None:
    """The gravest state among the ops that a call runs on the device."""
    with target.recording() as usage:
        call()
    states = {use.state for use in usage.facts().ops}
    return next((state for state in STATES if state in states), None)
