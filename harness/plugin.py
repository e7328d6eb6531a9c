"""pytest glue: options, one item per case, terminal summary, exit status.

pytest collects and selects; at the end of collection the selected cases become the plan of the run and go
to the pool; each item then waits for its own case. There is no second loop over cases.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

from harness.control import Kept, RunControl
from harness.errors import HarnessError, UsageError
from harness.options import add_options
from harness.records import Case, Status

RUN = pytest.StashKey[RunControl]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of ``conformance run``, for pytest itself."""
    add_options(parser.getgroup("conformance", "model conformance"))


def pytest_configure(config: pytest.Config) -> None:
    """Read the manifest and decide the plan's candidates; a wrong one ends pytest with a usage error."""
    if config.option.help or config.option.markers:
        return
    try:
        config.stash[RUN] = RunControl(config)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error
    if threading.current_thread() is threading.main_thread():
        # A CI system that cancels a job sends this before it kills: keep what has finished, as with Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the fork server."""
    control = config.stash.get(RUN, None)
    if control is not None:
        control.close()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What runs and where it is written."""
    control = config.stash.get(RUN, None)
    return control.header() if control else []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item per case."""
    if "case_outcome" in metafunc.fixturenames:
        cases = metafunc.config.stash[RUN].selected
        metafunc.parametrize("case_outcome", cases, ids=[case.id for case in cases], indirect=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the items in the order in which their cases begin, so that each is told soon after its end.

    And note that the selection was understood: pytest finishes a collection also when -k could not be read.
    """
    control = config.stash.get(RUN, None)
    if control is not None:
        control.selection_understood = True
    if control is not None and not config.option.collectonly:
        items.sort(key=lambda item: -control.expected_seconds(case) if (case := case_of(item)) else 0.0)


def pytest_collection_finish(session: pytest.Session) -> None:
    """The selected items are the plan: write it and start."""
    control = session.config.stash.get(RUN, None)
    if control is None or session.config.option.collectonly or not control.selection_understood:
        return
    chosen = {case.id for item in session.items if (case := case_of(item))}
    try:
        control.start(tuple(case for case in control.selected if case.id in chosen))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error
    except HarnessError as error:
        pytest.exit(str(error), returncode=error.exit_status)
    except OSError as error:
        raise pytest.UsageError(f"--run-dir {control.settings.run_directory}: {error}; name another folder") from error


def case_of(item: pytest.Item) -> Case | None:
    """The case of an item; None for one without, as of an empty selection."""
    found = item.callspec.params.get("case_outcome") if hasattr(item, "callspec") else None
    return found if isinstance(found, Case) else None


@pytest.fixture
def case_outcome(request: pytest.FixtureRequest) -> CaseOutcome:
    """The result of this item's case. A check that proves nothing is an error here, before the test."""
    control: RunControl = request.config.stash[RUN]
    result = control.wait(request.param)
    request.node.user_properties += [
        ("case", result.case),
        ("status", result.status.value),
        ("outcome", result.kind.value),
    ]
    if result.status is Status.ERROR:
        pytest.fail(describe(result), pytrace=False)
    return CaseOutcome(result)


@dataclass(frozen=True)
class CaseOutcome:
    """A finished case, as a test sees it."""

    result: Kept

    def enforce(self) -> None:
        """Fail, skip or return, as the verdict says."""
        __tracebackhide__ = True
        status = self.result.status
        if status in (Status.FAIL, Status.XPASS):
            pytest.fail(describe(self.result), pytrace=False)
        if status in (Status.SKIP, Status.NOTRUN):
            pytest.skip(f"{status}: {self.result.sentence}")
        if status is Status.XFAIL:
            pytest.xfail(self.result.sentence)


def describe(result: Kept) -> str:
    """Status, sentence and, for a dead process, the last words of its log."""
    lines = [f"{result.status} {result.case}: {result.sentence}"]
    if result.log:
        lines.append(f"log: {result.log} in the run directory")
    if result.detail:
        lines.append(result.detail)
    return "\n".join(lines)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let go of an item that has ended, and of its reports that nobody reads: 5 kilobytes a case."""
    ended = yield
    control = item.config.stash.get(RUN, None)
    if control is not None:
        item.session.items[control.count_item()] = None  # type: ignore[call-overload]
        terminal = item.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.stats.get("", []).clear()
    return ended


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Keep the status with the report, for the progress line."""
    report: Any = yield
    properties = dict(item.user_properties)
    if "status" in properties:
        report.conformance_status = properties["status"]
    report.keywords = {}  # a copy per report of what the item knows: a kilobyte each, and nobody reads it
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Show the project's own statuses: PASS, FAIL, XFAIL, XPASS, SKIP, ERROR, NOTRUN."""
    status = getattr(report, "conformance_status", None)
    if status is None or (report.when != "call" and report.passed) or report.when == "teardown":
        return None
    category = {"FAIL": "failed", "XPASS": "failed", "ERROR": "error", "PASS": "passed", "XFAIL": "xfailed"}
    return category.get(status, "skipped"), status[0], status


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Finish the run's files, whatever ended the session, and set the exit status of the contract."""
    control = session.config.stash.get(RUN, None)
    if control is None or control.writer is None:
        if exitstatus == pytest.ExitCode.INTERRUPTED:  # by the user; pytest calls errors while collecting so, too
            session.exitstatus = 3 if session.testsfailed else 130
        return
    control.finish(interrupted=exitstatus == pytest.ExitCode.INTERRUPTED)
    session.exitstatus = 3 if exitstatus == pytest.ExitCode.INTERNAL_ERROR else control.exit_status


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Totals, the sentences that matter, and where the run lies."""
    control = config.stash.get(RUN, None)
    if control is not None and control.complaint():
        terminalreporter.write_line(f"conformance: {control.complaint()}", red=True)
    if control is not None and control.run is not None and control.run.finished:
        terminalreporter.section("conformance")
        for line in control.summary():
            terminalreporter.write_line(line)
