"""The commands about more than one run or release: ``diff``, ``baseline update``, ``gate``, ``bisect``."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from harness.damage import Warnings
from harness.errors import UsageError
from harness.terminal import say

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
CaseArgument = Annotated[str, typer.Argument(metavar="CASE", help="A case id of the manifest.")]
IndexOption = Annotated[str, typer.Option("--index", metavar="URL", help="A folder, or what fsspec opens.")]
SecondsOption = Annotated[float, typer.Option(min=1, help="Time that one run may take.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (diff, gate, bisect):
        app.command()(command)
    baseline = typer.Typer(no_args_is_help=True, help="What each case is known to do, as reviewed text.")
    baseline.command("update")(baseline_update)
    app.add_typer(baseline, name="baseline")
    history = typer.Typer(no_args_is_help=True, help="Many runs, as an index that answers per case.")
    history.command("add")(history_add)
    history.command("case")(history_case)
    app.add_typer(history, name="history")


def diff(
    before: Annotated[Path, typer.Argument(metavar="RUN_A")],
    after: Annotated[Path, typer.Argument(metavar="RUN_B")],
    as_json: JsonOption = False,
) -> None:
    """What changed between two runs, better and worse apart, and whose change it was.

    Exit 1 for anything worse, and for a run that is damaged.
    """
    from harness import nightly

    warn = Warnings()
    found = nightly.diff(before, after, warn)
    say(found.json() if as_json else found.text())
    raise typer.Exit(1 if found.counts["worse"] else warn.exit_status)


def baseline_update(
    run_directory: Annotated[Path, typer.Argument(metavar="RUN_DIR")],
    place: Annotated[
        Path, typer.Option("--baseline", metavar="FILE|FOLDER", help="The baseline, or the folder of all of them.")
    ] = Path("reports/baselines"),
    accept: Annotated[str | None, typer.Option(metavar="better|worse", help="With both there: which to take.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the patch, write nothing.")] = False,
) -> None:
    """Accept a run as the new baseline: the smallest diff. Refuses incomplete or damaged runs, better with worse."""
    from harness import nightly

    if accept not in (None, "better", "worse"):
        raise UsageError(f"--accept {accept}: say better or worse")
    run = nightly.view(run_directory, Warnings())
    update = nightly.update(run, place, cast("Literal['better', 'worse'] | None", accept))
    if update.patch and not dry_run:
        update.write()
    say(update.patch.rstrip() or f"{update.path}: nothing to change")


def gate(
    run_directory: Annotated[Path, typer.Argument(metavar="RUN_DIR")],
    against: Annotated[Path, typer.Option(metavar="BASELINE", help="Its file, or the folder of all of them.")],
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="What must hold; docs/history.md.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the answer there.")] = None,
) -> None:
    """May this run be released? The answer is a text to sign off. Exit 1 when it is refused."""
    from harness import nightly

    found = nightly.gate(run_directory, against, policy, datetime.now(UTC).date(), Warnings())
    if out is not None:
        out.write_text(found.text, encoding="utf-8")
    say(found.text, nl=False)
    raise typer.Exit(0 if found.accepted else 1)


def bisect(
    case: CaseArgument,
    package: Annotated[list[str], typer.Option(metavar="NAME", help="Give two, each with its ends, to search both.")],
    good: Annotated[list[str], typer.Option(metavar="VERSION", help="A release with which the case is good.")],
    bad: Annotated[list[str], typer.Option(metavar="VERSION", help="A release, older or newer, with which it is bad.")],
    path: Annotated[Path, typer.Option("--manifest", metavar="FILE")] = Path("models.yaml"),
    out: Annotated[Path, typer.Option(help="Journal and runs; the same folder goes on.")] = Path("reports/bisect"),
    probe: Annotated[str | None, typer.Option(metavar="COMMAND", help="Instead of the case: 0 good, 125 skip.")] = None,
    above: Annotated[float | None, typer.Option(help="Bad is a relative L2 error above this.")] = None,
    find_links: Annotated[list[str] | None, typer.Option(metavar="FOLDER", help="As pip's, and no index.")] = None,
    checks: Annotated[int, typer.Option(min=0, help="Further releases asked on each side.")] = 1,
    seconds: SecondsOption = 3600.0,
    as_json: JsonOption = False,
) -> None:
    """Which upstream release changed a case. Both ends are proven first. Exit 1 when none could be named."""
    from harness import matrix, upstream

    if not len(package) == len(good) == len(bad):
        raise UsageError("give --package, --good and --bad equally often")
    if above is not None and not (math.isfinite(above) and above > 0):
        raise UsageError(f"--above {above}: a relative L2 error is a finite number above 0, for instance 0.01")
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: is a file; name a folder")
    for folder in find_links or ():
        if not Path(folder).is_dir():
            raise UsageError(f"--find-links {folder}: no such folder; name one that holds wheels")
    links = tuple(word for folder in find_links or () for word in ("--find-links", folder))
    request = upstream.Request(
        path, out / matrix.slug(case), ("--no-index", *links) if links else (), probe, above, seconds, checks
    )
    found = upstream.bisect(case, list(zip(package, good, bad, strict=True)), request, lambda line: say(line, err=True))
    say(found.json() if as_json else found.text())
    raise typer.Exit(0 if found.finding.culprits else 1)


def history_add(
    run_directories: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Run directories.")],
    index: IndexOption = "reports/index",
) -> None:
    """Add runs to an index; one that is there already is written again. Exit 1 when one is damaged."""
    from harness import nightly, store
    from harness.history.index import Index

    for directory in run_directories:
        store.read_plan(directory)  # all of them, before anything is written
    history, warn = Index(index), Warnings()
    for directory in run_directories:
        stored = nightly.read(directory, warn)
        history.add(stored.run, stored.results)
        say(f"{index}: {stored.run.run_id}, {len(stored.results)} cases")
    raise typer.Exit(warn.exit_status)


def history_case(case: CaseArgument, index: IndexOption = "reports/index", as_json: JsonOption = False) -> None:
    """What a case did in each run of an index, oldest first: status, error, seconds."""
    from harness import nightly

    rows = nightly.case_history(index, case)
    say(json.dumps(rows, indent=1) if as_json else nightly.case_table(rows))
