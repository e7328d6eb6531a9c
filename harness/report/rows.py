"""The one table that every rendering shows: a flat row per case of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from harness.records import (
    Case,
    CaseResult,
    Comparison,
    FolderSource,
    HubSource,
    OutputComparison,
    PairNumbers,
    Role,
    Status,
)
from harness.report.text import shown

NO_RESULT = "no_result"
"""Word in the outcome column of a planned case without a line in cases.jsonl: no outcome is known."""
SENTENCE_LIMIT = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseRow:
    """One case of one run. The field order is the column order of the CSV."""

    run_id: str
    case_id: str
    model: str
    family: str = ""
    architecture: str = ""
    task: str
    target: str
    mode: str
    dtype: str
    shape: str = ""
    check: str = ""
    status: str
    outcome: str
    stage: str = ""
    sentence: str
    flags: str = ""
    """Joined by a space."""
    error_ratio: float | None = None
    """Candidate's relative L2 error in units of the control's, at the worst output."""
    relative_l2: float | None = None
    control_relative_l2: float | None = None
    cosine: float | None = None
    max_abs: float | None = None
    kl_mean: float | None = None
    """nats"""
    top1_agreement: float | None = None
    """Share of positions."""
    device_share: float | None = None
    """Share of executed op calls that ran on the device."""
    ops_on_device: int | None = None
    fallbacks: int | None = None
    tensors: int = 0
    elements: int = 0
    seconds: float | None = None
    """Wall time from start to finish."""
    peak_memory: int | None = None
    """Host bytes of the candidate's process."""
    device_memory: int | None = None
    """Device bytes."""
    parameters: int | None = None
    origin: str = ""
    revision: str = ""
    checkpoint_digest: str = ""
    issue: str = ""
    """Link of the expectation, where there is one."""
    started: datetime | None = None


COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(CaseRow))


def rows(run_id: str, plan: Iterable[Case], results: Iterable[CaseResult]) -> Iterator[CaseRow]:
    """A row for each result, then one for each planned case that has none."""
    seen = set()
    for result in results:
        seen.add(result.case.id)
        yield result_row(run_id, result)
    for case in plan:
        if case.id not in seen:
            yield missing_row(run_id, case)


def result_row(run_id: str, result: CaseResult) -> CaseRow:
    """The row of a case with a result."""
    candidate = result.observations.get(Role.CANDIDATE)
    device = candidate.device if candidate else None
    checkpoint = result.checkpoint
    outputs = result.comparison.outputs if result.comparison else ()
    return CaseRow(
        **_case_cells(run_id, result.case),
        architecture=(checkpoint.architecture or "") if checkpoint else "",
        status=result.verdict.status.value,
        outcome=result.outcome.kind.value,
        stage=result.outcome.stage.value if result.outcome.stage else "",
        sentence=shown(result.verdict.sentence, SENTENCE_LIMIT),
        flags=" ".join(result.verdict.flags),
        error_ratio=error_ratio(result),
        relative_l2=_worst(outputs, lambda pair: pair.relative_l2),
        control_relative_l2=_worst(outputs, lambda pair: pair.relative_l2, Role.CONTROL),
        cosine=_worst(outputs, lambda pair: pair.cosine, largest=False),
        max_abs=_worst(outputs, lambda pair: pair.max_abs),
        kl_mean=_largest(o.candidate_logits.kl_mean for o in outputs if o.candidate_logits),
        top1_agreement=_top1(result.comparison),
        device_share=device.device_share if device else None,
        ops_on_device=device.ops_on_device if device else None,
        fallbacks=device.fallbacks if device else None,
        tensors=result.verdict.tensors,
        elements=result.verdict.elements,
        seconds=(result.finished - result.started).total_seconds(),
        peak_memory=candidate.peak_memory if candidate else None,
        device_memory=device.peak_memory if device else None,
        parameters=(checkpoint.parameters if checkpoint else None) or result.case.parameters,
        origin=origin(result),
        revision=(checkpoint.revision or "") if checkpoint else "",
        checkpoint_digest=checkpoint.digest if checkpoint else "",
        started=result.started,
    )


def missing_row(run_id: str, case: Case) -> CaseRow:
    """The row of a planned case without a result: NOTRUN, whatever the reason."""
    return CaseRow(
        **_case_cells(run_id, case),
        status=Status.NOTRUN.value,
        outcome=NO_RESULT,
        sentence="Planned, but the run holds no result for it.",
        parameters=case.parameters,
    )


def _case_cells(run_id: str, case: Case) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "case_id": case.id,
        "model": case.model,
        "family": case.family or "",
        "task": case.task.value,
        "target": case.target,
        "mode": case.mode.value,
        "dtype": case.dtype.value,
        "shape": str(case.shape) if case.shape else "",
        "check": case.check.value,
        "issue": (case.expectation.issue or "") if case.expectation else "",
    }


def origin(result: CaseResult) -> str:
    """Where the checkpoint came from; of a local folder only its last name."""
    if result.checkpoint:
        kind, _, rest = result.checkpoint.origin.partition(":")
        return f"folder:{_last(rest)}" if kind == "folder" else result.checkpoint.origin
    source = result.case.source
    if isinstance(source, HubSource):
        return f"hub:{source.hub}@{source.revision}"
    if isinstance(source, FolderSource):
        return f"folder:{_last(source.folder)}"
    return f"wheel:{source.wheel}/{source.path}"


def _last(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


def error_ratio(result: CaseResult) -> float | None:
    """What the verdict measured, or candidate's over control's relative L2 at the worst output."""
    measured = [f.value for f in result.verdict.findings if f.metric == "error_ratio"]
    if measured:
        return _largest(measured)
    return _largest(_ratio(output) for output in (result.comparison.outputs if result.comparison else ()))


def _ratio(output: OutputComparison) -> float | None:
    if not output.candidate or not output.control:
        return None
    ours, theirs = output.candidate.relative_l2, output.control.relative_l2
    if ours is None or theirs is None or (ours == 0 and theirs == 0):
        return None
    return ours / theirs if theirs else float("inf")


def _worst(
    outputs: Iterable[OutputComparison],
    number: Callable[[PairNumbers], float | None],
    role: Role = Role.CANDIDATE,
    *,
    largest: bool = True,
) -> float | None:
    pairs = [output.control if role is Role.CONTROL else output.candidate for output in outputs]
    numbers = [number(pair) for pair in pairs if pair is not None]
    if largest:
        return _largest(numbers)
    worst = _largest(None if value is None else -value for value in numbers)
    return None if worst is None else -worst


def _largest(numbers: Iterable[float | None]) -> float | None:
    """The largest number; NaN, which is worse than any, wins."""
    known = [number for number in numbers if number is not None]
    if not known:
        return None
    return next((number for number in known if number != number), max(known))


def _top1(comparison: Comparison | None) -> float | None:
    """Share of positions with the reference's top token, at the worst output."""
    logits = [output.candidate_logits for output in comparison.outputs] if comparison else []
    shares = [item.top1_agreements / item.positions for item in logits if item and item.positions]
    return min(shares) if shares else None
