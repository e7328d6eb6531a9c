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
from harness.localize import Taken
from harness.records import (
    CandidateDone,
    CandidateWork,
    Case,
    Check,
    Checkpoint,
    Comparison,
    CompileFacts,
    DeviceUse,
    Drill,
    Dtype,
    Mode,
    Observation,
    OutcomeKind,
    ReferenceDone,
    ReferencePart,
    ReferenceWork,
    Role,
    Sampling,
    Stage,
)
from harness.references import TENSORS
from harness.targets.torch_device import tensor_spec
from harness.workloads import FORCED, Question
from harness.workloads.base import make_batch, token_rows
from harness.workloads.embedding import checkpoint_pooling
from harness.workloads.question import Tensors


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
    forced = forced_tokens(Path(work.reference_folder)) if part.role is Role.CONTROL else {}
    mark(Stage.RUN)
    outputs = run(question, loaded.model, loaded.model, forced)
    if part.role is Role.REFERENCE:
        _agree_with_itself(outputs, run(question, loaded.model, loaded.model, _tokens(outputs)))
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
        if not _same(first[name], tensor):
            raise CheckpointError(
                f"two forwards of the float32 reference differ in {name}: no accuracy verdict is possible",
                OutcomeKind.NONDETERMINISTIC,
            )


@dataclass(frozen=True)
class Candidate:
    """The device under test with the case's model on it."""

    loaded: LoadedModel
    model: torch.nn.Module
    target: targets.Target
    device: torch.device


@dataclass(frozen=True)
class Answer:
    """What a candidate said, and what the device did for it."""

    outputs: Tensors
    device_use: DeviceUse
    unstable: tuple[str, ...]


def observe_candidate(mark: Marker, request: str) -> CandidateDone:
    """Run a case on its target and compare with the stored reference and control."""
    work = CandidateWork.model_validate_json(request)
    began = time.monotonic()
    mark(Stage.LOAD)
    question = question_of(work.case, work.checkpoint)
    forced = forced_tokens(Path(work.reference_folder))
    candidate = _placed(mark, work, question)
    answer = _answer(mark, work.case, question, candidate, forced)
    mark(Stage.COMPARE)
    comparison = _compared(work, question, candidate, answer)
    seconds = max(apart.LEAST_SECONDS, time.monotonic() - began)
    answer, taken = _looked_into(work, question, candidate, answer, forced, seconds)
    return CandidateDone(
        observation=_observation(mark, work, candidate, answer),
        comparison=comparison.model_copy(update={"outputs": (*comparison.outputs, *taken.worst)}),
        modules=taken.evidence,
    )


def _placed(mark: Marker, work: CandidateWork, question: Question) -> Candidate:
    """Load the case's model and move it to its target."""
    loaded = load(work.checkpoint, question.workload, work.case.dtype)
    mark(Stage.PLACE)
    target = targets.get(work.case.target)
    device = torch.device("cpu") if drilled(mark, "cpu") else target.device()
    model = loaded.model.to(device)
    scale(mark, model)
    return Candidate(loaded, model, target, device)


def _answer(mark: Marker, case: Case, question: Question, candidate: Candidate, forced: Tensors) -> Answer:
    """Ask the candidate, in the case's mode: a compiled one twice, since its first run compiles."""
    call: Callable[..., Any] = candidate.model
    warm: Tensors | None = None
    compiled: CompileFacts | None = None
    if case.mode is Mode.COMPILED:
        mark(Stage.COMPILE)
        with candidate.target.recording() as compiling:
            call = candidate.target.compile(candidate.model)
            warm = run(question, candidate.model, call, forced)
        compiled = compiling.facts().compiled
    mark(Stage.RUN)
    with candidate.target.recording() as usage:
        outputs = run(question, candidate.model, call, forced)
    use = usage.facts().model_copy(update={"compiled": compiled})
    return Answer(outputs, use, _unstable(warm, outputs))


def _compared(work: CandidateWork, question: Question, candidate: Candidate, answer: Answer) -> Comparison:
    """Store the outputs and compare them with the stored reference and control."""
    save_file(answer.outputs, work.tensors)
    stored = load_file(Path(work.reference_folder) / TENSORS)
    reference = {name: tensor for name, tensor in stored.items() if not name.startswith(FORCED)}
    control = load_file(Path(work.control_folder) / TENSORS)
    return compare_answers(
        work.case, question, reference, answer.outputs, control, number_format(work.case, candidate.device)
    )


def compare_answers(
    case: Case, question: Question, reference: Tensors, outputs: Tensors, control: Tensors, candidate_format: str
) -> Comparison:
    """The numbers of a case, its check's own among them."""
    sides = question.invariance(reference, outputs, control)
    expected, found, scale_ = (own | more for own, more in zip((reference, outputs, control), sides, strict=True))
    return compare.compare_outputs(
        expected,
        found,
        scale_,
        logits=question.logits(expected),
        candidate_format=candidate_format,
        control_format=case.dtype.value,
        masks=question.masks(expected),
        sampling=(case.inputs.sampling or Sampling()) if case.check is Check.SAMPLING else None,
    )


def _looked_into(
    work: CandidateWork, question: Question, candidate: Candidate, answer: Answer, forced: Tensors, seconds: float
) -> tuple[Answer, Taken]:
    """Each op variant run alone, where there is no compiled graph around it, and the forward module by module."""
    case, model = work.case, candidate.model

    def short_forward(model: torch.nn.Module) -> object:
        return run(question.shorter(), model, model, forced)

    if case.mode is Mode.EAGER:
        use = apart.check_ops(
            answer.device_use, model, short_forward, control_format=case.dtype.value, seconds=seconds / 2
        )
        answer = replace(answer, device_use=use)
    taken = apart.take_apart(
        work.checkpoint,
        model,
        short_forward,
        formats=(number_format(case, candidate.device), case.dtype.value),
        auto_class=question.workload.auto_class,
        seconds=seconds,
        memory=work.memory,
    )
    return answer, taken


def _observation(mark: Marker, work: CandidateWork, candidate: Candidate, answer: Answer) -> Observation:
    """The record of what ran."""
    return Observation(
        role=Role.CANDIDATE,
        target=work.case.target,
        dtype=work.case.dtype,
        mode=work.case.mode,
        threads=work.threads,
        weights_digest=candidate.loaded.weights_digest,
        outputs={name: tensor_spec(tensor) for name, tensor in answer.outputs.items()},
        device=answer.device_use,
        drills=tuple(str(drill) for drill in mark.drills),
        unstable=answer.unstable,
        notes=tuple(candidate.loaded.notes),
    )


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
    causal = workload.auto_class == "AutoModelForCausalLM"

    def tokenizer() -> Any:
        return checkpoints.load_tokenizer(checkpoint)

    if case.check.sets_shape:
        batches = workloads.asks(case.check, token_rows(inputs, folder, tokenizer), causal=causal)
    else:
        batches = (workloads.Ask(make_batch(inputs, case.shape, folder, tokenizer, repeat=causal)),)
    return Question(workload, batches, inputs)


def load(checkpoint: Checkpoint, workload: workloads.Workload, dtype: Dtype) -> LoadedModel:
    """The checkpoint as the workload's model, on the CPU."""
    return checkpoints.load_model(checkpoint, workload.auto_class, dtype.value)


def forced_tokens(folder: Path) -> Tensors:
    """The tokens that a stored reference chose, each int64 ``[batch, steps]``; none where the task decodes none."""
    return _tokens(load_file(folder / TENSORS))


def _tokens(outputs: Tensors) -> Tensors:
    return {name: tensor for name, tensor in outputs.items() if name.startswith(FORCED)}


def run(question: Question, model: torch.nn.Module, call: Callable[..., Any], forced: Tensors) -> Tensors:
    """The question's named outputs on the host."""
    with torch.no_grad():
        return question.run(model, call, forced)


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


def _unstable(first: Tensors | None, second: Tensors) -> tuple[str, ...]:
    """Outputs that a model gave other bits for when it was asked again."""
    if first is None:
        return ()
    return tuple(name for name, tensor in second.items() if not _same(first[name], tensor))


def _same(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(first.nan_to_num(), second.nan_to_num())
