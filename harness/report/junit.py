"""A run as JUnit XML: any XML parser reads it, whatever the failing code printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

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
        found[row.case_id] = ElementTree.tostring(testcase(row, result.outcome.detail), encoding="unicode")
    for case in run.plan:
        if case.id not in found:
            missing = testcase(missing_row(run.run_id, case), "")
            found[case.id] = ElementTree.tostring(missing, encoding="unicode")
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


def testcase(row: CaseRow, detail: str) -> ElementTree.Element:
    """One case with its evidence as properties."""
    case = ElementTree.Element(
        "testcase",
        classname=visible(f"{row.model}.{row.task}"),
        name=visible(row.case_id),
        time=f"{row.seconds or 0:.3f}",
    )
    properties = ElementTree.SubElement(case, "properties")
    for name, value in [("status", row.status), ("outcome", row.outcome), *_evidence(row)]:
        ElementTree.SubElement(properties, "property", name=name, value=visible(value))
    element = _ELEMENT.get(Status(row.status))
    if element:
        found = ElementTree.SubElement(case, element, type=row.outcome, message=f"{row.status}: {row.sentence}")
        found.text = shown(detail, DETAIL_LIMIT) if detail else None
    return case


def _evidence(row: CaseRow) -> list[tuple[str, str]]:
    cells = [(name, getattr(row, name)) for name in _EVIDENCE]
    return [
        (name, str(json_number(value) if isinstance(value, float) else value))
        for name, value in cells
        if value not in (None, "")
    ]
