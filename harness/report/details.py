"""Everything a model's page shows about one case: its record as JSON, safe to publish."""

from __future__ import annotations

import json
import shlex
from typing import Any

from harness.records import Case, CaseResult, DeviceUse, Observation, Role
from harness.report.numbers import dumps, strict
from harness.report.rows import origin
from harness.report.text import cut, is_clean_json, shown, visible

DETAIL_LIMIT = 6000
"""Characters of a traceback or log tail on the page; the whole text is in the linked log."""
OP_LIMIT = 400
"""Op variants on the page, the most troublesome first; all of them are in ops.parquet of the run."""
_STATE_ORDER = {"spyre_failed": 0, "not_implemented": 1, "cpu_fallback": 2, "spyre_enabled": 3}
_PRIVATE: Any = {
    "log": True,
    "case": {"source": {"folder"}},
    "checkpoint": {"folder", "origin"},
    "attempts": {"__all__": {"outcome": {"detail"}}},
}


def case_text(result: CaseResult, **more: Any) -> str:
    """The result as strict JSON text with `more` keys: no local path, each text cut and visible.

    Nearly all results hold nothing that has to be changed; those keep the serialiser's own text.
    """
    bounded, candidate = _bounded(result), result.observations.get(Role.CANDIDATE)
    text = bounded.model_dump_json(exclude=_PRIVATE, exclude_none=True)
    if not is_clean_json(text):
        text = dumps(_cleaned_case(json.loads(text)))
    return joined(text, {"origin": origin(result), "commands": commands(result.case, candidate), **more})


def planned_text(case: Case, **more: Any) -> str:
    """A planned case without a result in the same form."""
    tree = {
        "case": case.model_dump(mode="json", exclude={"source": {"folder"}}, exclude_none=True),
        "outcome": {"kind": "no_result"},
        "verdict": {"status": "NOTRUN", "sentence": "Planned, but the run holds no result for it."},
        "commands": commands(case),
        **more,
    }
    return dumps(_cleaned_case(strict(tree)))


def joined(text: str, more: dict[str, Any]) -> str:
    """A JSON object's text with further keys at its end."""
    return f"{text[:-1]},{dumps(cleaned(more))[1:]}" if more else text


def commands(case: Case, candidate: Observation | None = None) -> dict[str, str]:
    """Command lines that run, localise and reproduce the case elsewhere, with its drills and faults."""
    drills = [word for drill in (candidate.drills if candidate else ()) for word in ("--drill", drill)]
    # The brackets of a test's name make the id an exact one: checks beside a case have ids that begin with its own.
    selection = ["--model", case.model, "-k", f"[{case.id}]"]
    told = {
        "run": ["conformance", "run", *selection],
        "localize": ["conformance", "localize", case.id],
        "repro": ["conformance", "repro", case.id, "--out", "repro"],
    }
    return {name: switched(candidate) + shlex.join([*words, *drills]) for name, words in told.items()}


def switched(candidate: Observation | None) -> str:
    """What precedes a command so that the emulated device has the faults that it had; empty without any."""
    faults = candidate.device.configuration.get("faults") if candidate and candidate.device else None
    return f"SPYRE_EMULATOR_FAULTS={shlex.quote(faults)} " if faults else ""


def cleaned(tree: Any) -> Any:
    """The tree in strict JSON values, every text cut, visible and without machine paths."""
    if isinstance(tree, str):
        return tree if tree.isascii() and tree.isprintable() and "/" not in tree else shown(tree, DETAIL_LIMIT)
    if isinstance(tree, dict):
        return {cleaned(key): cleaned(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [cleaned(item) for item in tree]
    return strict(tree)


def _cleaned_case(tree: dict[str, Any]) -> dict[str, Any]:
    """Inputs were written by people: a SMILES string such as ``C(/C=C/N)`` is no path."""
    inputs = tree["case"].pop("inputs")
    clean = cleaned(tree)
    clean["case"]["inputs"] = {
        **inputs,
        "texts": [visible(cut(text, DETAIL_LIMIT)) for text in inputs.get("texts", [])],
    }
    return clean  # type: ignore[no-any-return]


def _bounded(result: CaseResult) -> CaseResult:
    """The result with its traceback and op table cut, where they are long."""
    changes: dict[str, Any] = {}
    if len(result.outcome.detail) > DETAIL_LIMIT:
        detail = cut(result.outcome.detail, DETAIL_LIMIT)
        changes["outcome"] = result.outcome.model_copy(update={"detail": detail})
    candidate = result.observations.get(Role.CANDIDATE)
    if candidate and candidate.device and len(candidate.device.ops) > OP_LIMIT:
        changes["observations"] = {**result.observations, Role.CANDIDATE: _fewer_ops(candidate, candidate.device)}
    return result.model_copy(update=changes) if changes else result


def _fewer_ops(candidate: Observation, device: DeviceUse) -> Observation:
    ordered = sorted(device.ops, key=lambda use: (_STATE_ORDER[use.state], -use.count, use.op))
    return candidate.model_copy(update={"device": device.model_copy(update={"ops": tuple(ordered[:OP_LIMIT])})})
