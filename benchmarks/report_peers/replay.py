"""A pytest module whose tests end as the cases of a run did, so that pytest's reporters see the same results.

``REPLAY`` names a file with a JSON object per line: id, status, sentence, detail and, where evidence is asked
for, record. Nothing is computed here: what a session costs beyond one without a reporter is the reporter's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

with Path(os.environ["REPLAY"]).open(encoding="utf-8") as lines:
    CASES = {one["id"]: one for one in map(json.loads, lines)}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("case", list(CASES), ids=lambda case: case)


@pytest.fixture
def prepared(case: str) -> None:
    """What proves nothing is an error of the setup; pytest knows no other."""
    if CASES[case]["status"] == "ERROR":
        pytest.fail(told(CASES[case]), pytrace=False)


def told(one: dict[str, str]) -> str:
    """The text of a case that did not pass."""
    return f"{one['sentence']}\n{one['detail']}".strip()


@pytest.mark.usefixtures("prepared")
def test_case(case: str, request: pytest.FixtureRequest) -> None:
    one = CASES[case]
    if "record" in one:
        attach(one["record"], request)
    match one["status"]:
        case "SKIP" | "NOTRUN":
            pytest.skip(told(one))
        case "XFAIL":
            pytest.xfail(told(one))
        case "FAIL" | "XPASS":
            pytest.fail(told(one), pytrace=False)


def attach(record: str, request: pytest.FixtureRequest) -> None:
    """Hand the evidence to the reporter that is there; without one it costs nothing."""
    if request.config.pluginmanager.hasplugin("pytest_html.plugin"):
        from pytest_html import extras

        request.getfixturevalue("extras").append(extras.json(record, name="evidence"))
    if request.config.pluginmanager.hasplugin("allure_pytest.plugin"):
        import allure

        allure.attach(record, name="evidence", attachment_type=allure.attachment_type.JSON)
