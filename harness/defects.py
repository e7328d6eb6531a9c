"""The commands about what goes wrong: ``localize``, ``repro``, ``ops``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.damage import Warnings
from harness.errors import HarnessError, UsageError
from harness.terminal import say

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
CaseArgument = Annotated[str, typer.Argument(metavar="CASE", help="A case id of the manifest.")]
RunOption = Annotated[Path | None, typer.Option("--run", metavar="RUN_DIR", help="Take the case from this run.")]
SecondsOption = Annotated[float, typer.Option(min=1, help="Time that the search may take.")]
DrillOption = Annotated[list[str] | None, typer.Option(metavar="GLOB:STAGE:ACTION", help="As for run.")]
CacheOption = Annotated[Path | None, typer.Option(metavar="DIR", help="As for run.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (localize, repro, ops):
        app.command()(command)


def localize(
    case: CaseArgument,
    path: Annotated[Path, typer.Option("--manifest", metavar="FILE")] = Path("models.yaml"),
    run_directory: RunOption = None,
    cache: CacheOption = None,
    drill: DrillOption = None,
    seconds: SecondsOption = 600.0,
    as_json: JsonOption = False,
) -> None:
    """First wrong module and op of a case. Exit 1 when there is one."""
    from harness import search

    done = search.localize(case, search.Request(path, run_directory, cache, tuple(drill or ()), seconds))
    found = done.localization
    say(found.model_dump_json(indent=1) if as_json else search.render(found))
    raise typer.Exit(1 if found.cause else 0)


def repro(
    case: CaseArgument,
    out: Annotated[Path, typer.Option(help="Folder for the reproducer.")],
    path: Annotated[Path, typer.Option("--manifest", metavar="FILE")] = Path("models.yaml"),
    run_directory: RunOption = None,
    cache: CacheOption = None,
    drill: DrillOption = None,
    seconds: SecondsOption = 600.0,
) -> None:
    """A folder that reproduces a case's first wrong op alone: script, minimal inputs, numbers, environment."""
    from harness import search

    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file; choose a folder with --out")
    if out.is_dir() and any(out.iterdir()) and not (out / "reproduce.py").is_file():
        raise UsageError(f"{out}: is not empty and holds no reproducer; choose another folder with --out")

    request = search.Request(path, run_directory, cache, tuple(drill or ()), seconds)
    done = search.localize(case, request, out.absolute())
    say(search.render(done.localization))
    if done.reproducer is not None:
        raise UsageError(f"no reproducer for {case}: {done.reproducer}")
    say(f"python {out / 'reproduce.py'}")


class _OpItems:
    """Gives the suite's op test one item per op of a run."""

    def __init__(self, reports: Any) -> None:
        self._reports = reports

    def pytest_generate_tests(self, metafunc: Any) -> None:
        if "op_report" in metafunc.fixturenames:
            metafunc.parametrize("op_report", self._reports, ids=[report.op for report in self._reports])


def ops(
    run_directory: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run directory.")],
    test: Annotated[bool, typer.Option("--test", help="As tests: one item per op, failing when it is wrong.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Op conformance from models: variants right and wrong alone, models that each op blocks.

    Exit 1 when an op fails, and for a run that is damaged.
    """
    from harness import nightly, opcheck
    from harness.records import OpState

    warn = Warnings()
    reports = opcheck.summarize(nightly.read(run_directory, warn).results)
    if not reports:
        raise HarnessError(
            f"{run_directory}: no case recorded an op, so nothing is known of any; see `conformance report`"
        )
    if test:
        import pytest

        suite = Path(__file__).parent / "suite"
        arguments = ["-c", str(suite / "pytest.ini"), "--rootdir", str(Path.cwd()), "-p", "no:cacheprovider"]
        ended = int(pytest.main([*arguments, str(suite / "test_ops.py")], plugins=[_OpItems(reports)]))
        raise typer.Exit(ended or warn.exit_status)
    listed = [report.model_dump(mode="json") for report in reports]
    say(json.dumps(listed, indent=1) if as_json else opcheck.render(reports))
    failed = any(report.state is OpState.SPYRE_FAILED for report in reports)
    raise typer.Exit(1 if failed else warn.exit_status)
