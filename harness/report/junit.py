"""A run as JUnit XML: any XML parser reads it, whatever the failing code printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from harness.records import CaseResult, Run, Status
from harness.report.numbers import json_number
from harness.report.rows import CaseRow, missing_row, result_row
from harness.report.text import shown, visible

_ELEMENT = {
    Status.FAIL: "failure",
    Status.XPASS: "failure",
    Status.ERROR: "error",
    Status.NOTRUN: "skipped",
    Status.SKIP: "skipped",
    Status.XFAIL: "skipped",
}
_EVIDENCE = ("error_ratio", "relative_l2", "cosine", "device_share", "tensors", "elements", "flags", "origin")
_COUNTED = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
DETAIL_LIMIT = 8000


def junit(run: Run, results: Iterable[CaseResult]) -> str:
    """The run as one ``testsuite``; planned cases without a result are there, as skipped.

    ``failure`` for FAIL and XPASS, ``error`` for ERROR, ``skipped`` with the reason for NOTRUN, SKIP and XFAIL.
    """
    found: dict[str, str] = {}
    for result in results:
        row = result_row(run.run_id, result)
        found[row.case_id] = testcase(row, result.outcome.detail)
    for case in run.plan:
        if case.id not in found:
            found[case.id] = testcase(missing_row(run.run_id, case), "")
    return document(run, list(found.values()))


def document(run: Run, testcases: Sequence[str]) -> str:
    """The whole file around testcases that are XML text already."""
    counts = {
        "tests": len(testcases),
        **{name: sum(1 for one in testcases if f"<{tag} " in one) for name, tag in _COUNTED},
    }
    attributes = " ".join(f'{name}="{number}"' for name, number in counts.items())
    body = "\n".join(testcases)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<testsuites>\n'
        f'<testsuite name="conformance" timestamp="{run.started.isoformat()}" {attributes}>\n{body}\n'
        "</testsuite>\n</testsuites>\n"
    )


def testcase(row: CaseRow, detail: str) -> str:
    """One case as XML text, with its evidence as properties."""
    pairs = [("status", row.status), ("outcome", row.outcome), *_evidence(row)]
    properties = "".join(f'<property name="{name}" value="{_attribute(value)}" />' for name, value in pairs)
    head = (
        f'<testcase classname="{_attribute(f"{row.model}.{row.task}")}" name="{_attribute(row.case_id)}" '
        f'time="{row.seconds or 0:.3f}"><properties>{properties}</properties>'
    )
    element = _ELEMENT.get(Status(row.status))
    if element:
        message = _attribute(f"{row.status}: {row.sentence}")
        text = escape(shown(detail, DETAIL_LIMIT), quote=False) if detail else ""
        head += f'<{element} type="{row.outcome}" message="{message}">{text}</{element}>'
    return head + "</testcase>"


def _attribute(text: str) -> str:
    """The text inside double quotes; parsers would turn a bare newline into a space."""
    return escape(visible(text)).replace("\n", "&#10;").replace("\t", "&#9;")


def _evidence(row: CaseRow) -> list[tuple[str, str]]:
    cells = [(name, getattr(row, name)) for name in _EVIDENCE]
    return [
        (name, str(json_number(value) if isinstance(value, float) else value))
        for name, value in cells
        if value not in (None, "")
    ]
