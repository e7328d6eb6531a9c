"""JUnit parses again, whatever the failing code printed."""

from __future__ import annotations

from xml.etree import ElementTree

from harness.records import Status
from harness.report import junit
from tests.report.synthetic import HOSTILE, HOSTILE_TEXT, Spec, cases, result, runs

SPEC = Spec(models=1, runs=1)


def parsed(run, results):
    return ElementTree.fromstring(junit(run, results))[0]


def test_each_status_has_its_element():
    plan = [next(cases(SPEC)).model_copy(update={"id": status.value}) for status in Status]
    run = runs(SPEC)[0].run.model_copy(update={"plan": tuple(plan)})
    suite = parsed(run, [result(case, Status(case.id), SPEC, 1, 0) for case in plan])
    found = {case.get("name"): [child.tag for child in case if child.tag != "properties"] for case in suite}
    assert found == {
        "PASS": [],
        "FAIL": ["failure"],
        "XFAIL": ["skipped"],
        "XPASS": ["failure"],
        "SKIP": ["skipped"],
        "ERROR": ["error"],
        "NOTRUN": ["skipped"],
    }
    counts = {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "7", "failures": "2", "errors": "1", "skipped": "3"}


def test_a_missing_case_is_there_as_skipped():
    one = runs(Spec(models=1, runs=1, missing=1, all_pass=True))[0]
    suite = parsed(one.run, one.results)
    assert suite[-1].find("skipped").get("message") == "NOTRUN: Planned, but the run holds no result for it."


def test_control_characters_and_markup_survive_in_visible_form():
    one = runs(Spec(models=1, runs=1, hostile=True))[0]
    texts = []
    for seen in one.results:
        bad = seen.outcome.model_copy(update={"detail": HOSTILE_TEXT + "\ud800"})
        verdict = seen.verdict.model_copy(update={"status": Status.FAIL, "sentence": HOSTILE_TEXT})
        texts.append(seen.model_copy(update={"outcome": bad, "verdict": verdict}))
    suite = parsed(one.run, texts)
    failure = suite[0].find("failure")
    assert failure.text == "\\x1b[31mred\\x1b[0m \\x00 \\x12 \\ufffe <script>window.pwned=1</script> | `x` ]]>\\ud800"
    assert failure.get("message").startswith("FAIL: \\x1b[31mred")
    names = {case.get("classname").rpartition(".")[0] for case in suite}
    assert {name for name in HOSTILE if "\u202e" not in name} <= names
