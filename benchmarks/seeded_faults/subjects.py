"""The models of the study with their questions: reference and control outputs, a candidate on the device."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

import spyre_emulator
from harness import checkpoints, compare, localize, manifest, verdict
from harness.apart import comparator
from harness.records import (
    Case,
    Checkpoint,
    Comparison,
    DeviceUse,
    Dtype,
    FolderSource,
    Inputs,
    Mode,
    ModuleEvidence,
    Observation,
    Outcome,
    OutcomeKind,
    Role,
    Task,
    Verdict,
)
from harness.subject import Question, compare_answers, load, question_of, run
from harness.workloads import FORCED

ROOT = Path(__file__).parents[2]
STACK = spyre_emulator.__version__
DEVICE = torch.device("spyre", 0)
DECODE_STEPS = 4
FIXTURES = ("llama-licence", "granite-licence", "qwen3-licence")
PACKAGED = ("minilm-l6-v2", "rxnmapper", "rxnfp-classifier", "smollm2-135m")
REACTIONS = (
    "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "CC(=O)O.CCO>>CC(=O)OCC",
    "COCCO.CC(=O)Cl>>CC(=O)OCCOC",
    "Brc1ccccc1.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1",
    "CCN.O=C(O)c1ccccc1>>CCNC(=O)c1ccccc1",
    "Nc1ccccc1.O=C=Nc1ccccc1>>O=C(Nc1ccccc1)Nc1ccccc1",
)


@dataclass(frozen=True)
class Judged:
    """One comparison: what peers look at, and what our verdict says."""

    reference: dict[str, torch.Tensor]
    control: dict[str, torch.Tensor]
    candidate: dict[str, torch.Tensor]
    comparison: Comparison
    verdict: Verdict
    evidence: ModuleEvidence


class Subject:
    """A model in one dtype."""

    def __init__(self, case: Case, checkpoint: Checkpoint) -> None:
        self.case = case
        self.checkpoint = checkpoint
        self._models: dict[Role, nn.Module] = {}

    @property
    def logits(self) -> frozenset[str]:
        """Outputs that are logits."""
        return self.question.workload.logits

    @cached_property
    def question(self) -> Question:
        """What the case asks."""
        return question_of(self.case, self.checkpoint)

    @property
    def reference_model(self) -> nn.Module:
        """The oracle, float32 on the CPU."""
        return self._model(Role.REFERENCE, Dtype.FLOAT32)

    def candidate(self) -> nn.Module:
        """A clean candidate on the device; the same object each time, for every question."""
        return self._model(Role.CANDIDATE, self.case.dtype)

    def _model(self, role: Role, dtype: Dtype) -> nn.Module:
        if role not in self._models:
            model = load(self.checkpoint, self.question.workload, dtype).model
            self._models[role] = model.to(DEVICE) if role is Role.CANDIDATE else model
        return self._models[role]

    @cached_property
    def reference(self) -> dict[str, torch.Tensor]:
        """The oracle's outputs, forced tokens among them."""
        return run(self.question, self.reference_model, self.reference_model, {})

    @cached_property
    def control(self) -> dict[str, torch.Tensor]:
        """Outputs on the CPU in the case's dtype."""
        model = self._model(Role.CONTROL, self.case.dtype)
        return run(self.question, model, model, self.forced)

    @property
    def forced(self) -> dict[str, torch.Tensor]:
        """The reference's tokens."""
        return {name: value for name, value in self.reference.items() if name.startswith(FORCED)}

    def asking(self, inputs: Inputs) -> Subject:
        """The same models, asked something else."""
        other = copy.copy(self)
        for name in ("question", "reference", "control"):
            other.__dict__.pop(name, None)
        other.case = self.case.model_copy(update={"inputs": inputs})
        return other

    def forward(self, model: nn.Module) -> object:
        """The question with one decode step at most: what is taken apart."""
        plain = model.get_submodule("_orig_mod") if hasattr(model, "_orig_mod") else model
        return run(self.question.shorter(), plain, model, self.forced)

    @property
    def noise(self) -> float:
        """Relative error that the control's format costs at least."""
        return compare.number_format(self.case.dtype.value).noise

    def judge(self, candidate: nn.Module, call: Callable[..., Any] | None = None) -> Judged:
        """Run a candidate and judge it as the harness does: outputs, then module by module."""
        outputs = run(self.question, candidate, candidate if call is None else call, self.forced)
        expected = {name: value for name, value in self.reference.items() if name not in self.forced}
        found = compare_answers(self.case, self.question, expected, outputs, self.control, "dlfloat16")
        taken = localize.modules(
            self.reference_model,
            candidate,
            self.forward,
            comparator("dlfloat16", self.case.dtype.value),
            floor=self.noise,
        )
        whole = found.model_copy(update={"outputs": (*found.outputs, *taken.worst)})
        judged = verdict.judge(self.case, Outcome(kind=OutcomeKind.COMPLETED), whole, _observations(self.case))
        return Judged(expected, self.control, outputs, whole, judged, taken.evidence)


def _observations(case: Case) -> dict[Role, Observation]:
    """What the verdict wants to know of the three runs, which all happened in this process."""
    common = {"target": "spyre", "mode": case.mode, "threads": torch.get_num_threads(), "weights_digest": "same"}
    return {
        role: Observation(role=role, dtype=dtype, device=DeviceUse(ops_on_device=1), **common)
        for role, dtype in (
            (Role.REFERENCE, Dtype.FLOAT32),
            (Role.CONTROL, case.dtype),
            (Role.CANDIDATE, case.dtype),
        )
    }


def subjects(cache: Path, dtype: Dtype, names: tuple[str, ...]) -> Iterator[Subject]:
    """Yield the named models with their default questions."""
    rows = manifest.load(ROOT / "models.yaml")
    for name in names:
        if name in FIXTURES:
            source, task = FolderSource(folder=str(ROOT / "tests/fixtures" / name)), Task.CAUSAL_LM
            inputs = Inputs(texts=(_window(random.Random(0), 40),), decode_steps=DECODE_STEPS)  # noqa: S311
        else:
            row = rows.models[name]
            source, task = row.source, row.task
            inputs = (row.inputs or Inputs()).over(rows.defaults.inputs.get(row.task, Inputs()))
        case = Case(
            id=f"{name}/{task}/spyre-eager-{dtype}",
            model=name,
            task=task,
            target="spyre",
            mode=Mode.EAGER,
            dtype=dtype,
            source=source,
            inputs=inputs,
        )
        yield Subject(case, checkpoints.resolve(source, cache=cache / "checkpoints", base=ROOT))


def varied(subject: Subject, seed: int) -> Subject:
    """The same model with another prompt, batch and length."""
    chance, inputs = random.Random(f"{subject.case.model} {seed}"), subject.case.inputs  # noqa: S311
    task = subject.case.task
    if task is Task.CAUSAL_LM:
        texts: tuple[str, ...] = (_window(chance, chance.choice((9, 17, 30, 48, 70))),)
    elif inputs.tokenizer == "smiles":
        texts = tuple(_reaction(chance) for _ in range(chance.choice((1, 2, 3))))
        if task is Task.MASKED_LM:
            texts = tuple(_masked(chance, text) for text in texts)
    else:
        texts = tuple(_window(chance, chance.choice((5, 12, 25))) for _ in range(chance.choice((1, 2, 4))))
    changed = {"texts": texts, "ids": ()}
    if task is Task.CAUSAL_LM:
        changed["decode_steps"] = DECODE_STEPS
    return subject.asking(inputs.model_copy(update=changed))


def _window(chance: random.Random, words: int) -> str:
    """Some words of the licence text, which the small models were trained on."""
    text = re.sub(r"\s+", " ", (ROOT / "LICENSE").read_text()).strip().split(" ")
    start = chance.randrange(len(text) - words)
    return " ".join(text[start : start + words])


def _reaction(chance: random.Random) -> str:
    """Molecules of the reactions above in new company: sense is not asked for, only other inputs."""
    molecules = sorted({one for text in REACTIONS for one in text.replace(">>", ".").split(".") if "[" not in one})
    return f"{'.'.join(chance.sample(molecules, chance.choice((2, 3, 4))))}>>{chance.choice(molecules)}"


def _masked(chance: random.Random, reaction: str) -> str:
    """A reaction with one atom masked."""
    places = [match.start() for match in re.finditer(r"[CNO](?![a-z@H\]])|c(?=[c(\d])", reaction)]
    place = chance.choice(places)
    return f"{reaction[:place]}[MASK]{reaction[place + 1 :]}"


def last_linear(subject: Subject) -> tuple[int, int]:
    """Shape of the second operand of the product that the last linear layer of the last block makes."""
    linears = [one for one in subject.reference_model.modules() if isinstance(one, nn.Linear)]
    last = linears[-2] if subject.case.task is Task.CAUSAL_LM else linears[-1]
    return (last.in_features, last.out_features)
