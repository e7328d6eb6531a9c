"""What happens inside a case's process: load, place, compile, run, compare.

`pipeline` joins the stages on the controller's side and this module joins them on the process' side; no
other module does. It is imported by the fork server and its children alone.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from harness import apart, checkpoints, compare, targets, workloads
from harness.checkpoints import LoadedModel
from harness.errors import CheckpointError, UsageError
from harness.isolate.child import Marker
from harness.records import (
    CandidateDone,
    CandidateWork,
    Case,
    Checkpoint,
    CompileFacts,
    DeviceUse,
    Drill,
    Dtype,
    Inputs,
    Mode,
    Observation,
    OutcomeKind,
    ReferenceDone,
    ReferencePart,
    ReferenceWork,
    Role,
    Stage,
)
from harness.references import TENSORS
from harness.targets.torch_device import tensor_spec
from harness.workloads.base import Batch, make_batch
from harness.workloads.embedding import checkpoint_pooling

Tensors = dict[str, torch.Tensor]
FORCED = "forced_tokens"


@dataclass(frozen=True)
class Question:
    """What this case asks: the workload with its batch."""

    workload: workloads.Workload
    batch: Batch
    inputs: Inputs

    def shorter(self) -> Question:
        """The same with one decode step at most: what is taken apart module by module."""
        steps = self.inputs.decode_steps
        short = self.inputs.model_copy(update={"decode_steps": 1 if steps is None else min(1, steps)})
        return replace(self, inputs=short)


def make_references(mark: Marker, request: str) -> ReferenceDone:
    """Make and store the reference and controls that are missing."""
    work = ReferenceWork.model_validate_json(request)
    question = question_of(work.case, work.checkpoint)
    observations = [_make_part(mark, work, part, question) for part in work.parts]
    return ReferenceDone(observations=tuple(observations))


def _make_part(mark: Marker, work: ReferenceWork, part: ReferencePart, question: Question) -> Observation:
    """One observation on the CPU, written to its folder."""
    mark(Stage.LOAD)
    loaded = load(work.checkpoint, question.workload, part.dtype)
    forced = None
    if part.role is Role.CONTROL:
        forced = forced_tokens(Path(work.reference_folder))
    mark(Stage.RUN)
    outputs = run(question, loaded.model, loaded.model, forced)
    if part.role is Role.REFERENCE:
        _agree_with_itself(outputs, run(question, loaded.model, loaded.model, outputs.get(FORCED)))
    save_file(outputs, Path(part.folder) / TENSORS)
    observation = Observation(
        role=part.role,
        target="cpu",
        dtype=part.dtype,
        mode=Mode.EAGER,
        threads=work.threads,
        weights_digest=loaded.weights_digest,
        outputs={name: tensor_spec(tensor) for name, tensor in outputs.items()},
        notes=tuple(loaded.notes),
    )
    del loaded
    gc.collect()
    return observation


def _agree_with_itself(first: Tensors, second: Tensors) -> None:
    """Raise CheckpointError(nondeterministic) when a second forward gives other bits."""
    for name, tensor in second.items():
        if not torch.equal(first[name].nan_to_num(), tensor.nan_to_num()):
            raise CheckpointError(
                f"two forwards of the float32 reference differ in {name}: no accuracy verdict is possible",
                OutcomeKind.NONDETERMINISTIC,
            )


def observe_candidate(mark: Marker, request: str) -> CandidateDone:
    """Run a case on its target and compare with the stored reference and control."""
    work = CandidateWork.model_validate_json(request)
    case, began = work.case, time.monotonic()
    mark(Stage.LOAD)
    question = question_of(case, work.checkpoint)
    loaded = load(work.checkpoint, question.workload, case.dtype)
    reference = load_file(Path(work.reference_folder) / TENSORS)
    forced = reference.pop(FORCED, None)

    mark(Stage.PLACE)
    target = targets.get(case.target)
    device = torch.device("cpu") if drilled(mark, "cpu") else target.device()
    model = loaded.model.to(device)
    scale(mark, model)

    call: Callable[..., Any] = model
    warm: Tensors | None = None
    compiled: CompileFacts | None = None
    if case.mode is Mode.COMPILED:
        mark(Stage.COMPILE)
        with target.recording() as compiling:
            call = target.compile(model)
            warm = run(question, model, call, forced)
        compiled = compiling.facts().compiled
    mark(Stage.RUN)
    with target.recording() as usage:
        outputs = run(question, model, call, forced)
    device_use = usage.facts().model_copy(update={"compiled": compiled})

    mark(Stage.COMPARE)
    save_file(outputs, work.tensors)
    control = load_file(Path(work.control_folder) / TENSORS)
    format_ = number_format(case, device)
    comparison = compare.compare_outputs(
        reference,
        outputs,
        control,
        logits=question.workload.logits,
        candidate_format=format_,
        control_format=case.dtype.value,
    )
    seconds = max(apart.LEAST_SECONDS, time.monotonic() - began)

    def short_forward(model: torch.nn.Module) -> object:
        return run(question.shorter(), model, model, forced)

    if case.mode is Mode.EAGER:
        device_use = apart.check_ops(
            device_use, model, short_forward, control_format=case.dtype.value, seconds=seconds / 2
        )
    taken = apart.take_apart(
        work.checkpoint,
        model,
        short_forward,
        formats=(format_, case.dtype.value),
        auto_class=question.workload.auto_class,
        seconds=seconds,
        memory=work.memory,
    )
    observation = Observation(
        role=Role.CANDIDATE,
        target=case.target,
        dtype=case.dtype,
        mode=case.mode,
        threads=work.threads,
        weights_digest=loaded.weights_digest,
        outputs={name: tensor_spec(tensor) for name, tensor in outputs.items()},
        device=device_use,
        drills=tuple(str(drill) for drill in mark.drills),
        notes=(*loaded.notes, *_repeatable(warm, outputs)),
    )
    whole = comparison.model_copy(update={"outputs": (*comparison.outputs, *taken.worst)})
    return CandidateDone(observation=observation, comparison=whole, modules=taken.evidence)


def probe_device(mark: Marker, target: str) -> DeviceUse:
    """Ask a device for a small sum: whether it answers at all."""
    mark(Stage.PLACE)
    device = targets.get(target).device()
    mark(Stage.RUN)
    with torch.no_grad():
        total = float(torch.ones(64, dtype=torch.float16).to(device).add(1).to("cpu").float().sum())
    if total != 128.0:
        raise RuntimeError(f"the device {target} gives {total} for the sum of 64 twos")
    return DeviceUse(ops_on_device=1)


def question_of(case: Case, checkpoint: Checkpoint) -> Question:
    """What a case asks, with its texts tokenized."""
    workload = workloads.get(case.task)
    folder = Path(checkpoint.folder)
    inputs = case.inputs
    if inputs.pooling == "checkpoint":
        inputs = inputs.model_copy(update={"pooling": checkpoint_pooling(folder)})
    batch = make_batch(
        inputs,
        case.shape,
        folder,
        lambda: checkpoints.load_tokenizer(checkpoint),
        repeat=workload.auto_class == "AutoModelForCausalLM",
    )
    return Question(workload, batch, inputs)


def load(checkpoint: Checkpoint, workload: workloads.Workload, dtype: Dtype) -> LoadedModel:
    """The checkpoint as the workload's model, on the CPU."""
    return checkpoints.load_model(checkpoint, workload.auto_class, dtype.value)


def forced_tokens(folder: Path) -> torch.Tensor | None:
    """The tokens that a stored reference chose, int64 ``[batch, steps]``; None where the task decodes none."""
    return load_file(folder / TENSORS).get(FORCED)


def run(question: Question, model: torch.nn.Module, call: Callable[..., Any], forced: torch.Tensor | None) -> Tensors:
    """The workload's named outputs on the host."""
    with torch.no_grad():
        return question.workload.run(model, call, question.batch, question.inputs, forced)


def number_format(case: Case, device: torch.device) -> str:
    """The number format that the candidate's values are in: 16-bit floats are DLFloat16 on the device."""
    if device.type == "spyre" and case.dtype is not Dtype.FLOAT32:
        return "dlfloat16"
    return case.dtype.value


def drilled(mark: Marker, action: str) -> Drill | None:
    """The drill of this action that strikes the placed model; None when there is none."""
    return next((d for d in mark.drills if d.action == action and d.stage is Stage.PLACE), None)


def scale(mark: Marker, model: torch.nn.Module) -> None:
    """The drill ``scale``: one parameter, on the device only."""
    drill = drilled(mark, "scale")
    if drill is None:
        return
    name, _, factor = drill.argument.partition("*")
    parameters = dict(model.named_parameters())
    if name not in parameters:
        raise UsageError(f"drill {drill}: the model has no parameter {name!r}")
    with torch.no_grad():
        parameters[name].mul_(float(factor))


def _repeatable(first: Tensors | None, second: Tensors) -> tuple[str, ...]:
    """A note when the compiled model gave other bits at its second run."""
    if first is None:
        return ()
    differing = [name for name, tensor in second.items() if not torch.equal(first[name], tensor)]
    return tuple(f"two compiled runs differ in {name}" for name in differing)
