"""The command ``conformance``: each command a few lines into the stages."""

from __future__ import annotations

import argparse
import difflib
import errno
import json
import os
import re
import sys
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from harness import ci, defects, over_time
from harness.damage import Warnings
from harness.errors import HarnessError, ManifestError, UsageError
from harness.terminal import say

app = typer.Typer(
    name="conformance",
    help="Which models run correctly on Spyre, since when, and what broke them.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

WRONG_PATH = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
        errno.ENXIO,
        errno.EPERM,
        errno.EROFS,
    }
)
"""What the system says of a path that cannot be meant; see errno(3)."""

ManifestArgument = Annotated[Path, typer.Argument(help="The matrix.", metavar="[models.yaml]")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Many = Annotated[list[str] | None, typer.Option(help="Only these; repeatable.", metavar="NAME")]


def main() -> NoReturn:
    """Run the command line. A HarnessError is one clear message; anything else is a bug with its traceback.

    A file or folder that the system refuses is one clear message too: exit status 2 where another path mends
    it, 3 where the machine has to be mended, for instance a full disk.
    """
    try:
        app()
    except ManifestError as error:
        _end(str(error), error.exit_status, "")  # a line per problem, each begins with its file and line
    except HarnessError as error:
        _end(str(error), error.exit_status)
    except OSError as error:
        if error.filename is None:
            raise
        place = os.fsdecode(error.filename)
        why = (error.strerror or str(error)).lower()
        mended_by_path = error.errno in WRONG_PATH
        remedy = "; name another path" if mended_by_path else ""
        _end(f"{place}: {why}{remedy}", 2 if mended_by_path else 3)
    sys.exit(0)


def _end(sentence: str, status: int, prefix: str = "conformance: ") -> NoReturn:
    say(f"{prefix}{sentence}", err=True)
    sys.exit(status)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    short_help="Plan, execute, judge, store, print a summary.",
)
def run(context: typer.Context) -> None:
    """Plan, execute, judge, store, print a summary. Options of pytest work too: -k, -x, --lf, --junitxml."""
    import pytest

    parser = _run_parser()
    if {"-h", "--help"} & set(context.args):
        parser.print_help()
        return
    try:
        parser.parse_known_args(context.args)  # pytest's own words for a wrong value speak of pytest.main()
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from error
    suite = Path(__file__).parent / "suite"
    arguments = [
        "-p",
        "harness.plugin",
        "-c",
        str(suite / "pytest.ini"),
        "--rootdir",
        str(Path.cwd()),
        "-v",
        "--capture=sys",
    ]
    code = pytest.main([*arguments, *context.args, str(suite / "test_models.py")])
    if code == pytest.ExitCode.USAGE_ERROR:
        _suggest(parser, context.args)
    # pytest says 4 for wrong usage, and 2 for an interrupt before the run began; the contract says 2 and 130.
    told = {pytest.ExitCode.USAGE_ERROR: 2, pytest.ExitCode.INTERRUPTED: 130}
    sys.exit(told.get(code, int(code)) if isinstance(code, pytest.ExitCode) else code)


def _run_parser() -> argparse.ArgumentParser:
    """The harness' own options of a run; pytest parses them with those of its own."""
    from harness.options import add_options

    parser = argparse.ArgumentParser(
        "conformance run",
        description="Plan, execute, judge, store, print a summary.",
        epilog="Options of pytest work too: -k EXPRESSION, -x, --lf, --junitxml FILE, -v, --collect-only.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    add_options(parser)
    return parser


def _suggest(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Name the option that a mistyped one may stand for; pytest says only that it knows none of that name."""
    known = re.findall(r"--[a-z-]+", parser.format_usage())
    for word in (word.partition("=")[0] for word in words if word.startswith("--")):
        near = difflib.get_close_matches(word, known, n=1, cutoff=0.75)
        if near and word not in known:
            say(f"conformance: no such option: {word}; did you mean {near[0]}?", err=True)


@app.command()
def check(
    path: ManifestArgument = Path("models.yaml"),
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema for editors.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Lint the manifest: schema, pins, duplicates, dead or expired expectations."""
    from harness import manifest

    if schema:
        say(json.dumps(manifest.json_schema(), indent=2))
        return
    loaded = manifest.load(path)
    problems = manifest.lint(loaded, date.today())
    errors = [problem for problem in problems if problem.severity == "error"]
    if as_json:
        say(json.dumps([asdict(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            say(str(problem))
        say(f"{path}: {len(loaded.models)} models, {len(errors)} errors")
    raise typer.Exit(2 if errors else 0)


@app.command("list")
def list_cases(
    model: Many = None,
    task: Many = None,
    target: Many = None,
    mode: Many = None,
    dtype: Many = None,
    check: Many = None,
    keyword: Annotated[str | None, typer.Option("-k", metavar="EXPR", help="As pytest's -k.")] = None,
    profile: Annotated[str | None, typer.Option(help="smoke, nightly, weekly or your own.")] = None,
    path: Annotated[Path, typer.Option("--manifest", metavar="FILE")] = Path("models.yaml"),
    as_json: JsonOption = False,
) -> None:
    """The cases that a run would plan, with estimated memory."""
    from harness import manifest, matrix

    cases = matrix.select(
        matrix.plan(manifest.load(path), profile=profile),
        models=tuple(model or ()),
        tasks=tuple(task or ()),
        targets=tuple(target or ()),
        modes=tuple(mode or ()),
        dtypes=tuple(dtype or ()),
        checks=tuple(check or ()),
        keyword=keyword,
    )
    rows = [(case, matrix.estimate(case)) for case in cases]
    if as_json:
        listed = [{"id": case.id, "estimate": asdict(estimate), "excluded": case.excluded} for case, estimate in rows]
        say(json.dumps(listed, indent=2))
        return
    for case, estimate in rows:
        size = f"{estimate.memory_bytes / 2**30:7.1f} GiB" if estimate.memory_bytes else "    ? GiB"
        say(f"{size}  {case.id}{'  (excluded)' if case.excluded else ''}")
    say(f"{len(rows)} cases")


@app.command()
def env(as_json: JsonOption = False) -> None:
    """What is installed and usable; says what to mend."""
    from harness import diagnosis

    findings = diagnosis.examine()
    if as_json:
        say(json.dumps([finding.model_dump(mode="json") for finding in findings], indent=2))
    else:
        for finding in findings:
            say(f"{'ok  ' if finding.usable else 'MEND'}  {finding.name:<14} {finding.text}")
    raise typer.Exit(0 if all(finding.usable for finding in findings) else 1)


@app.command()
def report(
    run_directories: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Run directories.")],
    out: Annotated[Path, typer.Option(help="Where the site goes.")] = Path("reports/site"),
    serve: Annotated[bool, typer.Option("--serve", help="Open it here, made anew while a run goes on.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of --serve; 0: a free one.")] = 0,
) -> None:
    """The static site, JUnit, Markdown summary, CSV and JSON of one or more runs. Exit status 1: one is damaged."""
    from harness import nightly

    warn = Warnings()
    nightly.publish(run_directories, out, warn)
    say(f"report: {out / 'index.html'}")
    if serve:
        nightly.serve(run_directories, out, port, say)
    raise typer.Exit(warn.exit_status)


@app.command()
def compare(
    reference: Annotated[Path, typer.Argument(metavar="REF.safetensors")],
    candidate: Annotated[Path, typer.Argument(metavar="CAND.safetensors")],
    control: Annotated[Path | None, typer.Option(help="Control outputs, for the error ratio.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The comparator on saved tensors, without a model. Exit 1 when they differ in structure."""
    from harness import compare as comparator

    comparison = comparator.compare_files(reference, candidate, control)
    say(comparison.model_dump_json(indent=1) if as_json else comparator.render_text(comparison))
    if not comparison.elements:
        raise UsageError(
            f"{candidate}: nothing in it could be compared with {reference}; give files with the "
            "same tensor names and shapes"
        )
    raise typer.Exit(1 if any(output.mismatch for output in comparison.outputs) else 0)


@app.command("matrix")
def job_matrix(
    shards: Annotated[int, typer.Option(min=1, help="At most so many jobs.")],
    github: Annotated[bool, typer.Option("--github", help="As a GitHub Actions matrix.")] = False,
    profile: Annotated[str | None, typer.Option(help="smoke, nightly, weekly or your own.")] = None,
    path: Annotated[Path, typer.Option("--manifest", metavar="FILE")] = Path("models.yaml"),
) -> None:
    """The job matrix for GitHub Actions."""
    from harness import manifest, matrix

    cases = matrix.plan(manifest.load(path), profile=profile)
    jobs: Any = matrix.github(cases, shards)
    say(json.dumps(jobs, separators=(",", ":")) if github else json.dumps(jobs, indent=2))


@app.command()
def merge(
    run_directories: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Shards of one run.")],
    out: Annotated[Path, typer.Option(help="The merged run directory.")],
) -> None:
    """The union of shards as one run directory. Red when a planned case has no result."""
    from harness import store

    merged = store.merge(run_directories, out)
    for problem in (*merged.problems, *(f"{case}: planned, no result" for case in merged.missing)):
        say(problem)
    say(f"{out}: {len(merged.results)} of {len(merged.run.plan)} cases, {datetime.now(UTC):%H:%M:%S} UTC")
    raise typer.Exit(1 if merged.missing or merged.problems else merged.run.exit_status or 0)


defects.register(app)
over_time.register(app)
app.add_typer(ci.app, name="ci")
