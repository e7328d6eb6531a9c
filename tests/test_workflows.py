"""What the workflows promise, read from their YAML: pinned actions, least permissions, everything through nox."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINS = {
    "actions/checkout": "08c6903cd8c0fde910a37f88322edcfb5dd907a8",
    "actions/setup-python": "e797f83bcb11b83ae66e0230d6156d7c80228e7c",
    "actions/cache": "9255dc7a253b0ccc959486e2bca901246202afeb",
    "actions/upload-artifact": "b7c566a772e6b6bfb58ed0dc250532a479d7789f",
    "actions/download-artifact": "37930b1c2abaa49bbe596cd826c3c89aef350131",
}


def load(name: str) -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load((ROOT / ".github" / "workflows" / name).read_text())


def jobs_of(path: Path) -> dict[str, dict[str, Any]]:
    return load(path.name)["jobs"]


def steps_of(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs_of(path).values() for step in job["steps"]]


def test_the_three_workflows_are_there() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "conformance.yml", "publish.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_hash_with_their_version_beside_it(path: Path) -> None:
    lines = [line.strip() for line in path.read_text().splitlines() if re.search(r"\buses:", line)]
    assert lines
    for line in lines:
        found = re.fullmatch(r"(?:- )?uses: (\S+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+", line)
        assert found, line
        owner, name = found[1].split("/")[:2]  # actions/cache/restore is a part of actions/cache
        assert PINS[f"{owner}/{name}"] == found[2]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_commands_go_through_nox_and_its_sessions_exist(path: Path) -> None:
    source = (ROOT / "noxfile.py").read_text()
    sessions = set(re.findall(r"^def (\w+)\(session", source, re.MULTILINE))
    commands = [shlex.split(step["run"]) for step in steps_of(path) if "run" in step]
    assert commands
    for command in commands:
        assert command == ["pip", "install", "nox"] or command[:2] == ["nox", "-s"], command
        if command[0] == "nox":
            assert command[2] in sessions


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_nothing_is_permitted_but_what_a_job_asks_for(path: Path) -> None:
    tree = load(path.name)
    assert tree["permissions"] == {}
    writes = {
        (name, scope)
        for name, job in tree["jobs"].items()
        for scope, level in job["permissions"].items()
        if level == "write"
    }
    allowed = {"conformance.yml": {("issues", "issues")}, "publish.yml": {("publish", "contents")}}
    assert writes == allowed.get(path.name, set())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_end_and_runs_do_not_collide(path: Path) -> None:
    tree = load(path.name)
    assert "${{" in tree["concurrency"]["group"]
    assert all(job["timeout-minutes"] <= 360 for job in tree["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_expression_is_pasted_into_a_shell(path: Path) -> None:
    assert [step["run"] for step in steps_of(path) if "${{" in step.get("run", "")] == []


def test_pull_requests_see_no_secret_and_leave_no_credential() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "secrets." not in text
    triggers = [load(path.name)[True] if True in load(path.name) else load(path.name)["on"] for path in WORKFLOWS]
    assert ["pull_request" in trigger for trigger in triggers] == [True, False, False]
    assert "pull_request_target" not in "".join(path.read_text() for path in WORKFLOWS)
    checkouts = [step for step in steps_of(WORKFLOWS[0]) if "checkout" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_the_hub_token_is_seen_by_the_steps_that_fetch_models_alone() -> None:
    holders = [
        (name, shlex.split(step["run"])[2])
        for path in WORKFLOWS
        for name, job in jobs_of(path).items()
        for step in job["steps"]
        if "secrets." in str(step)
    ]
    assert holders == [("shard", "conformance"), ("reproduce", "ci")]
    assert all("secrets." not in str(job.get("env", "")) for path in WORKFLOWS for job in jobs_of(path).values())


def test_the_merge_always_runs_and_no_night_is_cancelled() -> None:
    tree = load("conformance.yml")
    assert tree["jobs"]["merge"]["if"].startswith("${{ always() &&")
    assert tree["jobs"]["shard"]["strategy"]["fail-fast"] is False
    assert tree["concurrency"]["cancel-in-progress"] is False
    publish = load("publish.yml")
    assert publish["concurrency"]["group"] == "publish-${{ github.event.workflow_run.id }}"


def test_what_a_red_shard_fetched_is_kept() -> None:
    steps = load("conformance.yml")["jobs"]["shard"]["steps"]
    for name in ("restore", "save"):
        found = [step for step in steps if step.get("uses", "").startswith(f"actions/cache/{name}@")]
        assert [step["with"]["path"] for step in found] == [".cache/huggingface", ".cache/conformance"]
        assert all("runner.environment == 'github-hosted'" in step["if"] for step in found)
        assert all(step["if"].startswith("always()") == (name == "save") for step in found)
    uses = [step.get("uses", "").partition("@")[0] for step in steps]
    assert uses.index("actions/upload-artifact") < uses.index("actions/cache/save"), "results first"


def test_runners_of_ones_own_bring_their_python() -> None:
    """There is no Python to be set up for each architecture, s390x and ppc64le among them."""
    for name, job in load("conformance.yml")["jobs"].items():
        (setup,) = [step for step in job["steps"] if "setup-python" in step.get("uses", "")]
        assert ("inputs.runner" in job["runs-on"]) == (setup.get("if") == "runner.environment == 'github-hosted'"), name


def test_artifacts_of_a_run_have_names_of_their_own_that_github_takes() -> None:
    uploads = [
        step["with"]
        for step in steps_of(ROOT / ".github/workflows/conformance.yml")
        if "upload" in step.get("uses", "")
    ]
    names = [upload["name"] for upload in uploads]
    assert names == ["durations", "run-${{ matrix.name }}", "night", "reproducers"]
    assert all(upload["overwrite"] is True for upload in uploads)  # a job that is run again replaces its own
