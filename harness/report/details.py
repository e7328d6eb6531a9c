"""Everything a model's page shows about one case, as plain values ready for JSON."""

from __future__ import annotations

import shlex
from typing import Any

from harness.records import (
    Case,
    CaseResult,
    Checkpoint,
    DeviceUse,
    Observation,
    OutputComparison,
    Record,
    Role,
)
from harness.report.numbers import strict
from harness.report.rows import origin
from harness.report.text import shown

DETAIL_LIMIT = 6000
"""Characters of a traceback or log tail on the page; the whole text is in the linked log."""
OP_LIMIT = 400
"""Op variants on the page, the most troublesome first; the data of all are in ops.parquet of the run."""
_STATE_ORDER = {"spyre_failed": 0, "not_implemented": 1, "cpu_fallback": 2, "spyre_enabled": 3}


def case_detail(result: CaseResult) -> dict[str, Any]:
    """The case as the page shows it: no local path, each text cut and made visible."""
    case, outcome = result.case, result.outcome
    candidate = result.observations.get(Role.CANDIDATE)
    device = candidate.device if candidate else None
    tree = {
        **planned_detail(case),
        "status": result.verdict.status.value,
        "sentence": result.verdict.sentence,
        "flags": list(result.verdict.flags),
        "stale_expectation": result.verdict.stale_expectation,
        "outcome": {**_plain(outcome), "kind": outcome.kind.value},
        "findings": [_plain(finding) for finding in result.verdict.findings],
        "tolerance": _plain(result.verdict.tolerance) if result.verdict.tolerance else None,
        "tensors": result.verdict.tensors,
        "elements": result.verdict.elements,
        "checkpoint": _checkpoint(result.checkpoint) if result.checkpoint else None,
        "origin": origin(result),
        "observations": {role.value: _observation(seen) for role, seen in result.observations.items()},
        "device": _device(device) if device else None,
        "ops": _ops(device) if device else [],
        "op_variants": len(device.ops) if device else 0,
        "outputs": [_output(output) for output in result.comparison.outputs] if result.comparison else [],
        "not_compared": list(result.comparison.not_compared) if result.comparison else [],
        "probe": [result.comparison.probe_atol, result.comparison.probe_rtol] if result.comparison else None,
        "quantiles": list(result.comparison.quantiles) if result.comparison else [],
        "attempts": [
            {"kind": a.outcome.kind.value, "message": a.outcome.message, "seconds": a.seconds} for a in result.attempts
        ],
        "stages": {stage.value: seconds for stage, seconds in result.seconds.items()},
        "started": result.started.isoformat(),
        "seconds": (result.finished - result.started).total_seconds(),
        "worker": result.worker,
    }
    return cleaned(tree)  # type: ignore[no-any-return]


def planned_detail(case: Case) -> dict[str, Any]:
    """What is known of a case before it runs."""
    return {
        "id": case.id,
        "task": case.task.value,
        "target": case.target,
        "mode": case.mode.value,
        "dtype": case.dtype.value,
        "shape": str(case.shape) if case.shape else "",
        "family": case.family,
        "licence": case.licence,
        "parameters": case.parameters,
        "inputs": _plain(case.inputs),
        "relaxed": _plain(case.tolerance),
        "expectation": _plain(case.expectation) if case.expectation else None,
        "excluded": case.excluded,
        "commands": commands(case),
    }


def commands(case: Case) -> dict[str, str]:
    """Command lines that run, localise and reproduce the case elsewhere."""
    selection = ["--model", case.model, "--task", case.task, "--target", case.target]
    selection += ["--mode", case.mode, "--dtype", case.dtype]
    if case.shape:
        selection += ["-k", str(case.shape)]
    return {
        "run": shlex.join(["conformance", "run", *selection]),
        "localize": shlex.join(["conformance", "localize", case.id]),
        "repro": shlex.join(["conformance", "repro", case.id, "--out", "repro"]),
    }


def cleaned(tree: Any) -> Any:
    """The tree in strict JSON values, every text cut, visible and without machine paths."""
    if isinstance(tree, str):
        return tree if tree.isascii() and tree.isprintable() and "/" not in tree else shown(tree, DETAIL_LIMIT)
    if isinstance(tree, dict):
        return {cleaned(key): cleaned(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [cleaned(item) for item in tree]
    return strict(tree)


def _plain(record: Record) -> dict[str, Any]:
    return record.model_dump(mode="json", exclude_none=True)


def _checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    return checkpoint.model_dump(mode="json", exclude_none=True, exclude={"folder", "origin"})


def _observation(seen: Observation) -> dict[str, Any]:
    return seen.model_dump(mode="json", exclude_none=True, exclude={"device", "outputs", "role"})


def _device(device: DeviceUse) -> dict[str, Any]:
    share = device.device_share
    return {**device.model_dump(mode="json", exclude_none=True, exclude={"ops"}), "share": share}


def _ops(device: DeviceUse) -> list[Any]:
    """Rows ``[op, state, count, [[shape, strides, dtype], ...]]``."""
    ordered = sorted(device.ops, key=lambda use: (_STATE_ORDER[use.state], -use.count, use.op))
    return [
        [use.op, use.state.value, use.count, [[o.shape, o.strides, o.dtype] for o in use.operands]]
        for use in ordered[:OP_LIMIT]
    ]


def _output(output: OutputComparison) -> dict[str, Any]:
    """The output with numbers that are undefined left out; the page prints a dash for those."""
    return output.model_dump(mode="json", exclude_none=True)
