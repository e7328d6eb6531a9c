"""The nightly workflow's jobs in order, without GitHub: plan, shards, merge, issues, publish."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import github, jobs, manifest, matrix, store
from harness.cli import app
from harness.errors import StoreError, UsageError
from harness.records import Case, CaseResult, Localization, OpError, Outcome, OutcomeKind, Run, Status, Verdict
from tests.github.test_issues import Hub, hub
from tests.stored_runs import environment, write_run

__all__ = ["hub"]

PASS, FAIL = Status.PASS, Status.FAIL
NOTHING: Mapping[str, str] = {}
NIGHT = datetime(2026, 3, 1, 2, tzinfo=UTC)
MANIFEST = """\
version: 1
defaults:
  inputs:
    causal-lm: {texts: [a text]}
axes: {target: [spyre], mode: [eager, compiled], dtype: [float16], shape: [natural]}
profiles:
  nightly: {sources: [folder]}
models:
"""
ROW = "  %s: {task: causal-lm, licence: Apache-2.0, source: {folder: model}}\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with a manifest of three models, and a bare repository behind it."""
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_TOKEN", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    bare, clone = tmp_path / "bare.git", tmp_path / "clone"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    subprocess.run(["git", "clone", "-q", str(bare), str(clone)], check=True, capture_output=True)
    (clone / "models.yaml").write_text(MANIFEST + "".join(ROW % name for name in "abc"))
    monkeypatch.chdir(clone)
    return clone


def conformance(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


def result(case: Case, status: Status, when: datetime, wrong: str = "") -> CaseResult:
    verdict = Verdict(status=status, sentence=f"{status}: as planted")
    outcome = Outcome(kind=OutcomeKind.COMPLETED)
    return CaseResult(
        case=case,
        outcome=outcome,
        verdict=verdict,
        started=when,
        finished=when + timedelta(seconds=7),
        log="logs/x.log",
        localization=Localization(case=case.id, op=OpError(op=wrong), sentence=wrong, limit=3.0) if wrong else None,
    )


def run_shard(
    folder: Path,
    part: str,
    night: int = 0,
    failing: tuple[str, ...] = (),
    lost: bool = False,
    wrong: Mapping[str, str] = NOTHING,
) -> None:
    """What the job of one shard leaves behind; a lost one was killed after its first case.

    ``wrong``: the op at which failing models first go wrong.
    """
    path = Path("models.yaml")
    index, count = matrix.parse_shard(part)
    cases = matrix.shard(matrix.plan(manifest.load(path), profile="nightly"), index, count)
    when = NIGHT + timedelta(days=night, seconds=index)
    run = Run(
        run_id=f"{when:%Y%m%dT%H%M%SZ}-{index:06x}",
        started=when,
        profile="nightly",
        selection=f"--shard {part}",
        manifest_digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        environment=environment(),
        plan=cases,
    )
    writer = store.RunWriter(folder, run)
    (folder / "logs" / f"{index}.log").write_text("said\n")
    for case in cases[:1] if lost else cases:
        writer.append(result(case, FAIL if case.model in failing else PASS, when, wrong.get(case.model, "")))
    if lost:
        writer.close()
    else:
        writer.finish(when + timedelta(hours=1), int(any(case.model in failing for case in cases)))


def run_night(
    folder: Path, night: int, failing: tuple[str, ...] = (), wrong: Mapping[str, str] = NOTHING
) -> tuple[int, Path]:
    """All shards of a night and their merge; returns its exit status and folder."""
    for part in ("1/2", "2/2"):
        run_shard(folder / f"shards/run-{part[0]}-of-2", part, night, failing, wrong=wrong)
    status, _ = conformance("ci", "merge", folder / "shards", "--out", folder / "night", "--profile", "nightly")
    return status, folder / "night"


def test_the_plan_goes_to_the_outputs_and_durations_to_a_file(place: Path) -> None:
    arguments = ("--profile", "nightly", "--durations", "durations.json", "--output", "outputs")
    assert conformance("ci", "plan", "--shards", 2, *arguments)[0] == 0
    text = Path("outputs").read_text()
    assert '{"include":[{"shard":"1/2","name":"1-of-2"},{"shard":"2/2","name":"2-of-2"}]}' in text
    assert [line.split("<<")[0] for line in text.splitlines() if "<<" in line] == ["empty", "cases", "matrix"]
    assert json.loads(Path("durations.json").read_text()) == {}


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 600])
def test_plans_of_any_size_travel_through_a_variable(place: Path, count: int) -> None:
    rows = "".join(ROW.replace("Apache-2.0", "x" * 200) % f"model-{number}" for number in range(max(count, 1)))
    text = MANIFEST.replace("sources: [folder]", "sources: [wheel]") if count == 0 else MANIFEST
    Path("models.yaml").write_text(text + rows)
    outputs = jobs.plan(Path("models.yaml"), "nightly", 256)
    include = json.loads(outputs["matrix"])["include"]
    assert (outputs["empty"], outputs["cases"]) == (json.dumps(count == 0), str(2 * count))
    assert len(include) == len({job["name"] for job in include}) == min(256, 2 * count)
    seen = subprocess.run(
        ["/bin/sh", "-c", 'printf %s "$MATRIX"'], env={"MATRIX": outputs["matrix"]}, capture_output=True
    )
    assert seen.stdout.decode() == outputs["matrix"]
    assert outputs == jobs.plan(Path("models.yaml"), "nightly", 256)


def test_each_shard_of_the_plan_has_its_cases_and_all_have_each_case_once(place: Path) -> None:
    cases = matrix.plan(manifest.load(Path("models.yaml")), profile="nightly")
    jobs_of = json.loads(jobs.plan(Path("models.yaml"), "nightly", 4)["matrix"])["include"]
    parts = [matrix.shard(cases, *matrix.parse_shard(job["shard"])) for job in jobs_of]
    assert all(parts)
    assert sorted(case.id for part in parts for case in part) == [case.id for case in cases]


def test_shards_become_one_run_of_the_whole_profile(place: Path, tmp_path: Path) -> None:
    status, night = run_night(tmp_path / "n", 0)
    merged = store.read_run(night / "run")
    assert (status, merged.run.selection, merged.run.profile) == (0, "", "nightly")
    assert merged.run.finished is not None
    assert len(merged.results) == len(merged.run.plan) == 6
    assert sorted(path.name for path in (night / "run" / "logs").iterdir()) == ["1.log", "2.log"]
    assert (night / "baseline.patch").read_text().startswith("--- /dev/null\n+++ b/reports/baselines/nightly-x86_64")
    assert "this is the first run on x86_64 emulator" in (night / "summary.md").read_text()


def test_a_killed_shard_makes_the_merge_red_and_says_what_is_missing(place: Path, tmp_path: Path) -> None:
    run_shard(tmp_path / "shards/run-1-of-2", "1/2")
    run_shard(tmp_path / "shards/run-2-of-2", "2/2", lost=True)
    summary = tmp_path / "summary"
    arguments = ("--out", tmp_path / "night", "--profile", "nightly", "--summary", summary)
    status, said = conformance("ci", "merge", tmp_path / "shards", *arguments)
    merged = store.read_run(tmp_path / "night" / "run")
    assert status == 1
    assert merged.run.finished is None
    assert len(merged.missing) == len(merged.run.plan) - len(merged.results) > 0
    assert "cases have a result" in said
    text = summary.read_text()
    assert "## Incomplete" in text
    assert all(f"`{name}` was planned and has no result" in text for name in merged.missing)
    assert "is incomplete" in (tmp_path / "night" / "no-baseline.txt").read_text()


def test_shards_that_left_nothing_at_all_make_the_merge_red(place: Path, tmp_path: Path) -> None:
    run_shard(tmp_path / "shards/run-1-of-2", "1/2")
    arguments = ("--out", tmp_path / "night", "--profile", "nightly")
    assert conformance("ci", "merge", tmp_path / "shards", *arguments)[0] == 1
    arguments = ("--out", tmp_path / "empty", "--profile", "nightly", "--missing-ok")
    assert conformance("ci", "merge", tmp_path / "none", *arguments)[0] == 1
    assert len(store.read_run(tmp_path / "empty" / "run").missing) == 6


def test_a_night_without_a_case_proves_nothing(place: Path, tmp_path: Path) -> None:
    text = Path("models.yaml").read_text().replace("sources: [folder]", "sources: [wheel]")
    Path("models.yaml").write_text(text)
    arguments = ("--shards", 2, "--profile", "nightly", "--durations", "durations.json", "--output", "outputs")
    assert conformance("ci", "plan", *arguments)[0] == 0
    assert "\ntrue\n" in Path("outputs").read_text()
    arguments = ("--out", tmp_path / "night", "--profile", "nightly", "--missing-ok")
    assert conformance("ci", "merge", tmp_path / "shards", *arguments)[0] == 3


def test_shards_of_another_manifest_are_refused(place: Path, tmp_path: Path) -> None:
    run_shard(tmp_path / "shards/run-1-of-1", "1/1")
    with Path("models.yaml").open("a") as stream:
        stream.write(ROW % "d")
    with pytest.raises(StoreError, match=r"run-1-of-1: ran another manifest than models.yaml \(\w{12}, \w{12}\); "):
        conformance("ci", "merge", tmp_path / "shards", "--out", tmp_path / "night", "--profile", "nightly")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("merge", "nope", "--out", "n"),
            "nope: no such folder; name the folder that holds the shards' run",
        ),
        (("merge", "empty", "--out", "n"), "empty: holds no run directory; name the folder that holds the shards'"),
        (("merge", "models.yaml", "--out", "n"), "models.yaml: is a file; name the folder that holds the shards'"),
        (("merge", "damaged", "--out", "n"), "damaged/run.json: not JSON"),
        (("merge", "shards", "--out", "damaged"), "damaged: is not empty; name a new folder for the night"),
        (("merge", "shards", "--out", "n", "--repository", "nope"), "--repository nope: there is no such folder; "),
        (("merge", "shards", "--out", "n", "--repository", "bare"), "--repository bare: has no remote 'origin'; "),
        (("publish", "nope"), "nope: there is no such directory. Name a directory that 'run' wrote."),
        (("reproduce", "nope", "--out", "n"), "nope/issues.json: there is no such file; name the folder that "),
        (("reproduce", "damaged", "--out", "n"), "damaged/issues.json: lane: Field required; name the folder that "),
        (("issues", "damaged"), "damaged/issues.json: lane: Field required; name the folder that "),
        (("issues", "damaged", "--repository", "name"), "ci issues needs --repository OWNER/NAME and a token"),
        (("plan", "--shards", "2", "--durations", "d", "--repository", "nope"), "--repository nope: there is no such "),
        (("upstream", "--package", "nobody", "--which", "pinned", "--profile", "nightly"), "--package nobody: is not "),
        (("upstream", "--package", "torch", "--which", "pinned", "--profile", "moon"), "no profile is called 'moon'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_named_before_anything_is_written(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    run_shard(Path("shards/run-1-of-1"), "1/1")
    Path("empty").mkdir()
    subprocess.run(["git", "init", "-q", "bare"], check=True)
    Path("damaged").mkdir()
    Path("damaged/run.json").write_text('{"a"')
    Path("damaged/issues.json").write_text("{}")
    before = sorted(Path().glob("[!.]*"))
    with pytest.raises(UsageError) as caught:
        conformance("ci", *words)
    assert (str(caught.value).startswith(said), caught.value.exit_status) == (True, 2), caught.value
    assert sorted(Path().glob("[!.]*")) == before


def test_three_nights_regress_and_recover(place: Path, tmp_path: Path) -> None:
    seen = []
    for number, failing in enumerate([(), ("b",), ()]):
        status, night = run_night(tmp_path / f"{number}", number, failing)
        facts = json.loads((night / "issues.json").read_text())
        told = [(cause["kind"], sorted(cause["cases"])) for cause in facts["causes"]]
        seen.append((status, told, [name for name in facts["well"]["regressed"] if name.startswith("b/")]))
        assert conformance("ci", "publish", night / "run")[0] == 0
    both = [f"b/causal-lm/spyre-{mode}-float16" for mode in ("compiled", "eager")]
    assert seen == [(0, [], both), (1, [("regressed", both)], []), (0, [], both)]

    assert conformance("ci", "plan", "--shards", 2, "--durations", "durations.json")[0] == 0
    durations = json.loads(Path("durations.json").read_text())
    assert len(durations) == 6
    assert set(durations.values()) == {7.0}

    site = tmp_path / "site"
    github.checkout(place, "gh-pages", site)
    archive = jobs.Archive(site / jobs.ARCHIVE)
    assert len(archive.views()) == 3
    feed = (site / "feed.xml").read_text()
    assert feed.count("<entry>") == 4  # two cases, in the night that broke and in the one that showed a flake
    assert (site / "index.html").is_file()
    assert (site / ".nojekyll").is_file()


def test_issues_follow_the_nights(place: Path, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    said = []
    for number, failing in enumerate([(), ("b",), ("b", "c"), ()]):
        _, night = run_night(tmp_path / f"{number}", number, failing)
        words = ("--repository", "o/r", "--api", hub.url, "--run-id", 7, "--reproducers", "https://example.org/r")
        said.append(conformance("ci", "issues", night, *words)[1])
        conformance("ci", "publish", night / "run")
    assert said == [
        "",
        "opened: regressed in b, outside_rule on x86_64 emulator\n",
        "opened: regressed in c, outside_rule on x86_64 emulator\n",
        "closed #1: regressed in b, outside_rule on x86_64 emulator\n"
        "closed #2: regressed in c, outside_rule on x86_64 emulator\n",
    ]
    assert [text for _, text in hub.comments] == ["All 2 cases are well again in run `20260304T020001Z-000001`."] * 2
    body = hub.issues[0]["body"]
    assert "Results: https://github.com/o/r/actions/runs/7\nReproducers: https://example.org/r\n" in body


def test_a_night_of_another_profile_closes_nothing(place: Path, tmp_path: Path) -> None:
    run_night(tmp_path / "0", 0)
    conformance("ci", "publish", tmp_path / "0" / "night" / "run")
    archive = tmp_path / "pages"
    github.checkout(place, "gh-pages", archive)
    wells = []
    for profile in ("nightly", "few"):
        other = write_run(tmp_path / profile, {"x": PASS}, 90, profile=profile)
        night = jobs.tonight(other, jobs.Archive(archive / jobs.ARCHIVE)).issues()
        wells.append({name.partition("/")[0] for name in night.well["regressed"]})
    assert wells == [{"a", "b", "c", "x"}, {"x"}]


def test_one_defect_over_families_is_one_issue_and_another_one_is_not(
    place: Path, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place where a case first goes wrong decides, though nothing recorded differs between the nights."""
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    said = []
    for number, wrong in enumerate([{}, {"a": "aten.mm", "b": "aten.mm"}, {"a": "aten.mm", "c": "aten.exp"}]):
        _, night = run_night(tmp_path / f"{number}", number, tuple(wrong), wrong)
        said.append(conformance("ci", "issues", night, "--repository", "o/r", "--api", hub.url)[1])
        conformance("ci", "publish", night / "run")
    assert said == [
        "",
        "opened: regressed at aten.mm on x86_64 emulator\n",
        "updated #1: regressed at aten.mm on x86_64 emulator\nopened: regressed at aten.exp on x86_64 emulator\n",
    ]
    assert [text for _, text in hub.comments] == ["Run `20260303T020001Z-000001`: 0 more, 2 well again, 2 left."]


def test_a_token_is_asked_for(place: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="GITHUB_TOKEN"):
        conformance("ci", "issues", tmp_path)


def test_a_search_that_cannot_run_leaves_its_reason(place: Path, tmp_path: Path) -> None:
    run_night(tmp_path / "0", 0)
    conformance("ci", "publish", tmp_path / "0" / "night" / "run")
    _, night = run_night(tmp_path / "1", 1, ("b",))
    status, said = conformance("ci", "reproduce", night, "--out", tmp_path / "reproducers", "--count", 1)
    case = "b/causal-lm/spyre-compiled-float16"
    assert (status, said.startswith(f"{case}: {case}: ")) == (0, True)  # there is no such checkpoint
    reason = (tmp_path / "reproducers" / matrix.slug(case) / "localization.txt").read_text()
    assert "model" in reason


def test_a_mixed_night_gives_a_patch_for_each_direction(place: Path, tmp_path: Path) -> None:
    _, first = run_night(tmp_path / "1", 0, ("a",))
    assert conformance("baseline", "update", first / "run")[0] == 0
    _, second = run_night(tmp_path / "2", 1, ("b",))
    names = sorted(path.name for path in second.iterdir() if path.is_file())
    assert names == ["baseline-better.patch", "baseline-worse.patch", "issues.json", "summary.md"]
    for way in ("better", "worse"):
        subprocess.run(["git", "apply", "--check", str(second / f"baseline-{way}.patch")], check=True)


def test_two_publishers_from_the_same_parent_both_stay(place: Path, tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"{n}", {"a": PASS}, n, run_id=f"2026030{n + 1}T020000Z-00000{n}") for n in range(3)]
    keep = timedelta(days=36500)
    github.publish(place, "gh-pages", lambda tree: jobs.add_night(tree, runs[0], keep), "first")
    calls = []

    def slow(tree: Path) -> None:
        calls.append(tree)
        if len(calls) == 1:
            github.publish(place, "gh-pages", lambda other: jobs.add_night(other, runs[2], keep), "fast")
        jobs.add_night(tree, runs[1], keep)

    github.publish(place, "gh-pages", slow, "slow")
    assert len(calls) == 2
    site = tmp_path / "site"
    github.checkout(place, "gh-pages", site)
    archive = jobs.Archive(site / jobs.ARCHIVE)
    assert [view.run_id[:8] for view in archive.views()] == ["20260301", "20260302", "20260303"]
    assert archive.newest() == "20260303T020000Z-000002"
    # The site is the newest run's; the one that came late is in it from the next run on.
    assert json.loads((site / "site.json").read_text())["run_id"].startswith("20260303")


def test_a_smaller_profile_does_not_replace_the_site(tmp_path: Path) -> None:
    tree, keep = tmp_path / "tree", timedelta(days=36500)
    tree.mkdir()
    shown = []
    for number, (profile, models) in enumerate([("nightly", "abc"), ("smoke", "a"), ("smoke", "a"), ("nightly", "ab")]):
        name = f"2026030{number + 1}T020000Z-00000{number}"
        run = write_run(tmp_path / name, dict.fromkeys(models, PASS), number, run_id=name, profile=profile)
        jobs.add_night(tree, run, keep)
        shown.append(json.loads((tree / "site.json").read_text())["run_id"][:8])
    assert shown == ["20260301", "20260301", "20260301", "20260304"]
    assert len(jobs.Archive(tree / jobs.ARCHIVE).views()) == 4


def test_old_runs_are_forgotten(tmp_path: Path) -> None:
    archive = jobs.Archive(tmp_path)
    for number, name in enumerate(("20250101T020000Z-000001", "20260101T020000Z-000002")):
        run = write_run(tmp_path / f"run-{number}", {"a": PASS}, 365 * number - 365, run_id=name)
        archive.add(store.read_run(run), ())
    archive.prune(datetime(2025, 6, 1, tzinfo=UTC))
    assert [view.run_id for view in archive.views()] == ["20260101T020000Z-000002"]
    assert sorted(path.name for path in (tmp_path / "digests").iterdir()) == ["20260101T020000Z-000002.json"]


def test_a_summary_of_a_large_night_keeps_the_worst(place: Path, tmp_path: Path) -> None:
    statuses = {f"model-{n:04}": FAIL if n == 299 else PASS for n in range(300)}
    found = jobs.tonight(write_run(tmp_path / "run", statuses), jobs.Archive(tmp_path / "none"))
    summary = tmp_path / "summary"
    github.append_summary(summary, found.text())
    text = summary.read_text()
    assert summary.stat().st_size < 1 << 20
    assert text.index("model-0299") < text.index("model-0000")
