"""Clean comparisons and seeded faults, one JSON line each; a study that was interrupted goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.seeded_faults import faults, rules, subjects
from benchmarks.seeded_faults.faults import Seeded, Truth
from benchmarks.seeded_faults.subjects import DEVICE, Judged, Subject
from harness import localize
from harness.localize import Device
from harness.records import Dtype, Mode, ModuleEvidence
from harness.verdict import DEFAULTS

FROZEN = Path(__file__).with_name("frozen.json")
PROMPTS = 3
"""Prompts per model that faults are seeded into."""
BEYOND_ROUNDING = 4.0
"""A fault changes a module's output beyond rounding when some stretch, under the reference's inputs, errs by more
than twice what it does without the fault plus so many roundings of the control's format; or when integers or
non-finite values change there; or when a final output of a compiled run does so. Fixed before the study."""


@dataclass
class Log:
    """The study's lines."""

    path: Path

    def done(self) -> set[str]:
        """Keys of what has been measured."""
        if not self.path.exists():
            return set()
        return {json.loads(line)["key"] for line in self.path.read_text().splitlines()}

    def add(self, line: dict[str, Any]) -> None:
        """Append one measurement."""
        with self.path.open("a") as stream:
            stream.write(json.dumps(line) + "\n")


def frozen() -> dict[str, Any]:
    """The verdict's limits as they stand, by task and dtype."""
    return {f"{task}/{dtype}": limits.model_dump(exclude={"reason"}) for (task, dtype), limits in DEFAULTS.items()}


def freeze() -> None:
    """Write the limits down. Held-out faults are drawn from the hash of this file, so after it."""
    FROZEN.write_text(json.dumps(frozen(), indent=1, sort_keys=True) + "\n")


def held_out_seed() -> str:
    """Hash of the frozen limits. Raises SystemExit when the verdict's limits are not the frozen ones."""
    if json.loads(FROZEN.read_text()) != json.loads(json.dumps(frozen())):
        raise SystemExit(f"the verdict's limits differ from {FROZEN.name}: freeze them anew (--freeze)")
    return hashlib.sha256(FROZEN.read_bytes()).hexdigest()


def clean(log: Log, cache: Path, names: tuple[str, ...], dtype: Dtype, seeds: range) -> None:
    """Clean comparisons: other prompts, batches and lengths; one or two threads."""
    done = log.done()
    for subject in subjects.subjects(cache, dtype, names):
        for seed in seeds:
            key = f"clean/{subject.case.model}/{dtype}/{seed}"
            if key in done:
                continue
            torch.set_num_threads(1 + seed % 2)
            asked = subjects.varied(subject, seed)
            judged = asked.judge(asked.candidate())
            log.add({"key": key, "kind": "clean", **_scores(judged, asked), "threads": torch.get_num_threads()})
        torch.set_num_threads(1)


def seeded(log: Log, cache: Path, names: tuple[str, ...], dtype: Dtype, count: int, half: str) -> None:
    """``count`` faults per model, each into one of a few prompts; ``half`` is ``development`` or ``held-out``."""
    salt = half if half == "development" else held_out_seed()
    done = log.done()
    for subject in subjects.subjects(cache, dtype, names):
        asked = [subjects.varied(subject, 1000 + number) for number in range(PROMPTS)]
        before: dict[int, Judged] = {}
        ops = [faults.variants(one.candidate(), one.forward) for one in asked]
        for number in range(count):
            chance, prompt = random.Random(f"{salt} {subject.case.model} {number}"), number % PROMPTS  # noqa: S311
            fault = _draw(chance, subject, ops[prompt], number)
            key = f"fault/{half}/{subject.case.model}/{dtype}/{number}"
            if fault is None or key in done:
                continue
            if prompt not in before:
                before[prompt] = asked[prompt].judge(subject.candidate())
            log.add({"key": key, "half": half, **_with_fault(asked[prompt], fault, before[prompt], None, None)})


def known(log: Log, cache: Path, names: tuple[str, ...], dtype: Dtype, *, compiled: bool) -> None:
    """The catalogue's silent faults in each model, and generic ones that act in compiled code only."""
    done = log.done()
    for subject in subjects.subjects(cache, dtype, names):
        before, plain = None, None
        for fault in _compiled_faults(subject) if compiled else faults.catalogue(compiled=False):
            key = f"catalogue/{subject.case.model}/{dtype}/{fault.name}"
            if key in done:
                continue
            if before is None:
                plain = _compile(subject) if compiled else None
                before = subject.judge(subject.candidate(), plain)
            log.add({"key": key, "half": "catalogue", **_with_fault(subject, fault, before, plain, subject)})
            if fault.resets:
                plain = None
                torch._dynamo.reset()


def _compiled_faults(subject: Subject) -> Iterator[Seeded]:
    chance = random.Random(f"compiled {subject.case.model}")  # noqa: S311
    ops = faults.variants(subject.candidate(), subject.forward)
    for _ in range(6):
        yield faults.op_fault(chance, ops, compiled=True)
    wanted = ("F04", "F06", "F07", "F31", "F32", "F33")
    yield from (fault for fault in faults.catalogue(compiled=True) if fault.name.startswith(wanted))


def _compile(subject: Subject) -> Callable[..., Any]:
    torch._dynamo.reset()
    compiled: Callable[..., Any] = torch.compile(subject.candidate(), dynamic=False)
    return compiled


def _draw(chance: random.Random, subject: Subject, ops: list[faults.Variant], number: int) -> Seeded | None:
    """A fault of each kind in turn: weights, ops, positions."""
    if number % 12 == 11:
        return faults.position_fault()
    if number % 2:
        return faults.op_fault(chance, ops, compiled=False)
    kinds = list(faults.WEIGHTS)
    start = (number // 2) % len(kinds)
    for kind in (*kinds[start:], *kinds[:start]):
        if any(faults._fits(kind, name, one) for name, one in subject.candidate().named_parameters()):
            return faults.weight_fault(chance, subject.candidate(), kind)
    return None


def _with_fault(
    subject: Subject, fault: Seeded, before: Judged, call: Callable[..., Any] | None, anew: Subject | None
) -> dict[str, Any]:
    """One faulty run: scores, whether it matters at all, and what localisation makes of it."""
    candidate, truth = subject.candidate(), Truth()
    began = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(fault.switch(candidate, truth))
        if fault.compiled and (fault.resets or call is None) and anew is not None:
            call = _compile(anew)
        try:
            judged = subject.judge(candidate, call)
        except (RuntimeError, NotImplementedError, IndexError, ValueError) as error:
            text = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            return {"kind": "raised", "fault": fault.name, "group": fault.group, "error": text}
        line = {
            "kind": "fault",
            "fault": fault.name,
            "group": fault.group,
            "compiled": fault.compiled,
            "fired": truth.fired,
            "matters": _matters(subject, before, judged),
            "truth": {"module": truth.module, "op": truth.op},
            **_scores(judged, subject),
            "seconds": round(time.monotonic() - began, 2),
        }
        if line["matters"] and line["scores"]["ours"][1]:
            line["found"] = _located(subject, judged, fault)
    return line


def _located(subject: Subject, judged: Judged, fault: Seeded) -> dict[str, Any]:
    compile_ = (lambda model: torch.compile(model, dynamic=False)) if fault.compiled else None
    search = localize.first_wrong(
        subject.case.id,
        subject.reference_model,
        subject.candidate(),
        subject.forward,
        subjects.comparator("dlfloat16", subject.case.dtype.value),
        Device(DEVICE, compile_, lambda call: None),
        floor=subject.noise,
        evidence=judged.evidence,
    )
    found = search.localization
    return {
        "module": found.module.module if found.module else None,
        "stretch": found.module.name if found.module else None,
        "op": found.op.op if found.op else None,
        "cause": found.cause,
        "seconds": round(found.seconds, 2),
        "sentence": found.sentence,
    }


def _scores(judged: Judged, subject: Subject) -> dict[str, Any]:
    found = rules.scores(judged, subject.logits)
    return {
        "model": subject.case.model,
        "dtype": subject.case.dtype.value,
        "mode": Mode.EAGER.value,
        "scores": {name: [score if score < 1e30 else 1e30, bool(alarm)] for name, (score, alarm) in found.items()},
        "sentence": judged.verdict.sentence[:300],
    }


def _matters(subject: Subject, before: Judged, after: Judged) -> bool:
    """Whether the fault changes some module's output, or a final one, beyond rounding."""
    return _modules_differ(before.evidence, after.evidence, subject.noise) or _outputs_differ(
        before, after, subject.noise
    )


def _modules_differ(before: ModuleEvidence, after: ModuleEvidence, noise: float) -> bool:
    usual = {(error.name, error.call, index): error for index, error in enumerate(before.errors)}
    for index, error in enumerate(after.errors):
        known_error = usual.get((error.name, error.call, index))
        if known_error is None or error.mismatch or error.nonfinite > known_error.nonfinite:
            return True
        if (error.unequal or 0) > (known_error.unequal or 0):
            return True
        if (error.relative_l2 or 0.0) > 2 * (known_error.relative_l2 or 0.0) + BEYOND_ROUNDING * noise:
            return True
    return False


def _outputs_differ(before: Judged, after: Judged, noise: float) -> bool:
    for name, reference in before.reference.items():
        size = float(reference.double().norm())
        usual = float((before.candidate[name].double() - reference.double()).norm()) / size
        now = float((after.candidate[name].double() - reference.double()).norm()) / size
        if not now <= 2 * usual + BEYOND_ROUNDING * noise:
            return True
    return False
