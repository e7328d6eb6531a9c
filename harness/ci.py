"""The commands ``conformance ci``: what the nightly workflow's jobs call, each usable by hand."""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from harness.damage import Warnings
from harness.errors import UsageError
from harness.terminal import say

app = typer.Typer(no_args_is_help=True, help="Steps of the nightly workflow; docs/ci.md.")

ManifestOption = Annotated[Path, typer.Option("--manifest", metavar="FILE")]
ProfileOption = Annotated[str | None, typer.Option(help="smoke, nightly, weekly or your own.")]
BranchOption = Annotated[str, typer.Option(metavar="BRANCH", help="The branch that serves the pages.")]
RepositoryOption = Annotated[Path, typer.Option(metavar="FOLDER", help="A clone whose origin has the branch.")]
SummaryOption = Annotated[Path | None, typer.Option(envvar="GITHUB_STEP_SUMMARY", metavar="FILE")]


@app.command()
def plan(
    shards: Annotated[int, typer.Option(min=1, help="At most so many jobs.")],
    durations: Annotated[Path, typer.Option(metavar="FILE", help="Where the seconds by case go, for --balance-by.")],
    profile: ProfileOption = None,
    path: ManifestOption = Path("models.yaml"),
    branch: BranchOption = "gh-pages",
    repository: RepositoryOption = Path(),
    output: Annotated[Path | None, typer.Option(envvar="GITHUB_OUTPUT", metavar="FILE")] = None,
) -> None:
    """The shard jobs, and how long each case took before."""
    from harness import github, jobs

    outputs = jobs.plan(path, profile, shards)
    with tempfile.TemporaryDirectory(prefix="pages-") as name:
        github.checkout(repository, branch, Path(name))
        known = jobs.Archive(Path(name) / jobs.ARCHIVE).durations()
    durations.write_text(json.dumps(known, sort_keys=True) + "\n", encoding="utf-8")
    if output is not None:
        github.set_outputs(output, outputs)
    say(f"{outputs['cases']} cases, {len(known)} of known duration; {outputs['matrix']}")


@app.command()
def merge(
    shards: Annotated[Path, typer.Argument(metavar="FOLDER", help="Holds the shards' run directories.")],
    out: Annotated[Path, typer.Option(help="Empty folder for the night: run, texts, patches, issues.json.")],
    profile: ProfileOption = None,
    path: ManifestOption = Path("models.yaml"),
    branch: BranchOption = "gh-pages",
    repository: RepositoryOption = Path(),
    baselines: Annotated[Path, typer.Option(metavar="FILE|FOLDER")] = Path("reports/baselines"),
    missing_ok: Annotated[bool, typer.Option("--missing-ok", help="No shard at all: all of them died.")] = False,
    summary: SummaryOption = None,
) -> None:
    """One run from all shards, held against history and baseline. Exit 1 when it is incomplete or worse."""
    from harness import github, jobs

    run = out / "run"
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: {'is not empty' if out.is_dir() else 'is a file'}; name a new folder for the night")
    directories = jobs.find_shards(shards, missing_ok=missing_ok)
    with tempfile.TemporaryDirectory(prefix="pages-") as name:
        github.checkout(repository, branch, Path(name))
        warn = Warnings()
        warn(run, jobs.merge(directories, run, path, profile).problems)
        found = jobs.tonight(run, jobs.Archive(Path(name) / jobs.ARCHIVE))
    text = found.text()
    (out / "summary.md").write_text(text, encoding="utf-8")
    found.issues().write(out)
    for file, patch in jobs.baseline_patches(found.view, baselines):
        if patch:
            (out / file).write_text(patch, encoding="utf-8")
    if summary is not None:
        github.append_summary(summary, text)
    say(f"{run}: {len(found.stored.results)} of {len(found.stored.run.plan)} cases have a result")
    raise typer.Exit(found.exit_status or warn.exit_status)


@app.command()
def reproduce(
    night: Annotated[Path, typer.Argument(metavar="NIGHT", help="What `ci merge` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for the reproducers.")],
    count: Annotated[int, typer.Option(min=0, help="Regressions that get one.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="Time for each.")] = 600.0,
    path: ManifestOption = Path("models.yaml"),
) -> None:
    """A folder for each regression that reproduces it alone, as far as the search gets."""
    from harness import github, jobs, search

    facts = github.read_night(night)
    request = search.Request(path, night / "run", None, (), seconds)
    out.mkdir(parents=True, exist_ok=True)
    for line in jobs.reproduce(facts, request, out.absolute(), count):
        say(line)


@app.command()
def issues(
    night: Annotated[Path, typer.Argument(metavar="NIGHT", help="What `ci merge` wrote.")],
    reproducers: Annotated[str, typer.Option(metavar="URL", help="Where they can be fetched.")] = "",
    token: Annotated[str, typer.Option(envvar="GITHUB_TOKEN", metavar="TOKEN", show_envvar=False)] = "",
    repository: Annotated[str, typer.Option(envvar="GITHUB_REPOSITORY", metavar="OWNER/NAME")] = "",
    api: Annotated[str, typer.Option(envvar="GITHUB_API_URL", metavar="URL")] = "https://api.github.com",
    server: Annotated[str, typer.Option(envvar="GITHUB_SERVER_URL", metavar="URL")] = "https://github.com",
    run_id: Annotated[str, typer.Option(envvar="GITHUB_RUN_ID", metavar="ID", help="Of the workflow run.")] = "",
) -> None:
    """One issue per cause: opened, updated, closed when fixed."""
    from harness import github, jobs

    if not token or not re.fullmatch(r"[^/\s]+/[^/\s]+", repository):
        raise UsageError("ci issues needs --repository OWNER/NAME and a token in GITHUB_TOKEN")
    facts = github.read_night(night)
    links = [f"Results: {server}/{repository}/actions/runs/{run_id}"] if run_id else []
    links += [f"Reproducers: {reproducers}"] if reproducers else []
    links += ["", "A reproducer of any case: `conformance repro CASE --out FOLDER`."]
    for line in jobs.issues(replace(facts, links=tuple(links)), github.Client(api, repository, token)):
        say(line)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def upstream(
    context: typer.Context,
    package: Annotated[str, typer.Option(metavar="NAME", help="transformers, torch or another one.")],
    which: Annotated[str, typer.Option(metavar="WHICH", help="pinned, previous, before-previous or newest.")],
    profile: ProfileOption = "smoke",
    path: ManifestOption = Path("models.yaml"),
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="For the environments.")] = Path(".nox/upstream"),
    missing_ok: Annotated[bool, typer.Option("--missing-ok", help="Exit 0 for a release that cannot be had.")] = False,
) -> None:
    """A run with another upstream release. Options of ``conformance run`` work too."""
    from harness import combinations, store

    if which not in combinations.WHICH:
        raise UsageError(f"--which {which}: one of {', '.join(combinations.WHICH)}")
    directory = Path("reports") / "runs" / store.new_run_id(datetime.now(UTC))
    said, status = combinations.run(
        package,
        which,
        combinations.Request(path, profile, folder, directory, options=tuple(context.args), missing_ok=missing_ok),
    )
    say(said)
    raise typer.Exit(status)


@app.command()
def publish(
    run_directory: Annotated[Path, typer.Argument(metavar="RUN_DIR")],
    branch: BranchOption = "gh-pages",
    repository: RepositoryOption = Path(),
    keep_days: Annotated[int, typer.Option(min=31, help="Days of history that are kept.")] = 730,
) -> None:
    """Add a run to the pages branch and render its site. Safe when several publish at once."""
    from harness import github, jobs, store

    run = store.read_plan(run_directory).run_id
    keep = timedelta(days=keep_days)
    commit = github.publish(
        repository, branch, lambda tree: jobs.add_night(tree, run_directory, keep), f"Publish run {run}"
    )
    say(f"{branch}: {run} is in {commit}")
