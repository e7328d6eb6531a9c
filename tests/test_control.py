"""One run from the controller's side: what it does with the expectations of its rows."""

from __future__ import annotations

from typing import Any

import pytest

from harness.history import view
from tests.conformance_site import Finished, Site, lines_with

CPU = {"target": ["cpu"], "mode": ["eager"], "dtype": ["float16"]}
DRILLS = ("--drill", "dies/*:load:exit=3", "--drill", "differs/*:load:exit=3", "--retries", "0", "--localize", "0")


def known(outcome: str) -> dict[str, Any]:
    return {"expect": [{"outcome": outcome, "reason": "known since the first night", "expires": "2999-01-01"}]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """One that passes, one that dies as it is known to, one that dies otherwise, one that passes unexpectedly."""
    rows = {"dies": known("crash"), "differs": known("timeout"), "mended": known("outside_rule"), "well": {}}
    return Site(tmp_path_factory.mktemp("site")).rows(rows, axes=CPU)


@pytest.fixture(scope="module")
def gating(site: Site) -> Finished:
    return site.run("gating", *DRILLS)


@pytest.fixture(scope="module")
def validate(site: Site, gating: Finished) -> Finished:
    """With the references that the other run made."""
    return site.run("validate", *DRILLS, "--expectations", "validate")


def statuses(finished: Finished) -> dict[str, str]:
    return {model: told.split()[0] for model, told in finished.told.items()}


def test_expectations_are_held_against_the_cases(gating: Finished) -> None:
    assert statuses(gating) == {"dies": "XFAIL", "differs": "FAIL", "mended": "XPASS", "well": "PASS"}
    assert (gating.exit_status, gating.stored.run.exit_status, gating.stored.run.expectations) == (1, 1, "gating")
    assert "set aside" not in gating.output


def test_expectations_that_are_set_aside_show_what_each_row_does(validate: Finished) -> None:
    assert statuses(validate) == {"dies": "FAIL", "differs": "FAIL", "mended": "PASS", "well": "PASS"}
    flags = {model: result.verdict.flags for model, result in validate.results.items()}
    assert flags == {"dies": ("as_expected",), "differs": ("unexpected",), "mended": ("unexpected",), "well": ()}
    run = validate.stored.run
    assert (validate.exit_status, run.exit_status, run.expectations) == (0, 0, "validate")
    assert lines_with(validate.output, "set aside") == [
        "expectations are set aside (validate), so FAIL does not make the run red: "
        "fail as expected 1, contradict their entry 2"
    ]


def test_such_runs_are_a_history_of_their_own(gating: Finished, validate: Finished) -> None:
    lanes = [view(one.stored.run, one.stored.results).lane for one in (gating, validate)]
    assert lanes[1] == f"{lanes[0]} validate"


def test_a_run_is_resumed_as_it_was_begun(site: Site, validate: Finished) -> None:
    refused = site.run("validate", *DRILLS, "--resume")
    assert refused.exit_status == 2
    assert "was begun with --expectations validate; resume it so" in refused.errors
