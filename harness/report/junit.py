"""A run as JUnit XML: any XML parser reads it, whatever the failing code printed."""

from __future__ import annotations

from collections.abc import Iterable
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
DETAIL_LIMIT = 8000


def junit(run: Run, results: Iterable[CaseResult]) -> str:
    """The run as one ``testsuite``; planned cases without a result are there, as skipped.

    ``failure`` for FAIL and XPASS, ``error`` for ERROR, ``skipped`` with the reason for NOTRUN, SKIP and XFAIL.
    """
    suite = ElementTree.Element("testsuite", name="conformance", timestamp=run.started.isoformat())
    seen: set[str] = set()
    for result in results:
        seen.add(result.case.id)
        _append(suite, result_row(run.run_id, result), result.outcome.detail)
    for case in run.plan:
        if case.id not in seen:
            _append(suite, missing_row(run.run_id, case), "")
    _count(suite)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _append(suite: ElementTree.Element, row: CaseRow, detail: str) -> None:
    case = ElementTree.SubElement(
        suite,
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


def _evidence(row: CaseRow) -> list[tuple[str, str]]:
    cells = [(name, getattr(row, name)) for name in _EVIDENCE]
    return [
        (name, str(json_number(value) if isinstance(value, float) else value))
        for name, value in cells
        if value not in (None, "")
    ]


def _count(suite: ElementTree.Element) -> None:
    suite.set("tests", str(len(suite)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in suite):.3f}")
