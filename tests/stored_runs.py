"""Small run directories with planted statuses, for what works on stored runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from harness.records import (
    Case,
    CaseResult,
    Dtype,
    Environment,
    Inputs,
    Mode,
    Outcome,
    OutcomeKind,
    Package,
    Run,
    Stage,
    Status,
    Task,
    Verdict,
    WheelSource,
)
from harness.store import RunWriter

FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)
DIGEST = "d" * 64


def case(model: str) -> Case:
    return Case(
        id=f"{model}/causal-lm/spyre-eager-float16",
        model=model,
        task=Task.CAUSAL_LM,
        target="spyre",
        mode=Mode.EAGER,
        dtype=Dtype.FLOAT16,
        source=WheelSource(wheel="tiny==1.0", path="tiny", sha256="0" * 64),
        inputs=Inputs(ids=((1, 2),)),
    )


def result(model: str, status: Status, when: datetime) -> CaseResult:
    kind = {Status.NOTRUN: OutcomeKind.UNAVAILABLE, Status.ERROR: OutcomeKind.HARNESS_FAULT}
    sentence = "within the rule" if status is Status.PASS else f"{status}: as planted"
    return CaseResult(
        case=case(model),
        outcome=Outcome(kind=kind.get(status, OutcomeKind.COMPLETED), stage=Stage.COMPARE),
        verdict=Verdict(status=status, sentence=sentence),
        started=when,
        finished=when + timedelta(seconds=3),
    )


def environment(transformers: str = "5.24.0", **rest: object) -> Environment:
    values: dict[str, object] = {
        "python": "3.11.7",
        "platform": "Linux",
        "machine": "x86_64",
        "cpu": "some cpu",
        "cores": 2,
        "memory": 8 << 30,
        "packages": (Package(name="transformers", version=transformers),),
        "device": {"kind": "emulator", "version": "1"},
    }
    return Environment(**(values | rest))


def write_run(
    folder: Path,
    statuses: Mapping[str, Status],
    night: int = 0,
    *,
    planned: tuple[str, ...] = (),
    finished: bool = True,
    env: Environment | None = None,
    **rest: object,
) -> Path:
    """Write the run of a night, a case per model; ``planned`` names models without a result."""
    when = FIRST + timedelta(days=night)
    fields = {"profile": "nightly", "manifest_digest": DIGEST, "environment": env or environment()}
    plan = tuple(case(name) for name in sorted({*statuses, *planned}))
    run = Run(**({"run_id": f"night-{night:03}", "started": when, "plan": plan} | fields | rest))
    writer = RunWriter(folder, run)
    for model, status in statuses.items():
        writer.append(result(model, status, when))
    if finished:
        bad = any(status is not Status.PASS for status in statuses.values())
        writer.finish(when + timedelta(hours=1), int(bad))
    else:
        writer.close()
    return folder
