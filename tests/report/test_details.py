"""The commands of a case's page run, localise and reproduce that case and no other."""

from __future__ import annotations

import shlex
import zipfile
from dataclasses import replace

import pytest

from harness.records import Role, Status
from harness.report import render
from harness.report.details import commands, switched
from tests.report.synthetic import Spec, runs
from tests.report.test_site import chunk


@pytest.fixture
def seen():
    return next(iter(runs(Spec(models=1, runs=1, all_pass=True))[0].results))


def test_a_command_names_one_case(seen):
    assert commands(seen.case) == {
        "run": "conformance run --model granite-1.0-0b -k '[granite-1.0-0b/causal-lm/spyre-eager-float16]'",
        "localize": "conformance localize granite-1.0-0b/causal-lm/spyre-eager-float16",
        "repro": "conformance repro granite-1.0-0b/causal-lm/spyre-eager-float16 --out repro",
    }


def test_faults_and_drills_of_the_run_are_switched_on_again(seen):
    candidate = seen.observations[Role.CANDIDATE]
    assert switched(candidate) == ""
    device = candidate.device.model_copy(update={"configuration": {"faults": "F06,F10"}})
    broken = candidate.model_copy(update={"device": device, "drills": ("*:place:scale=a.weight*1.05",)})
    assert switched(broken) == "SPYRE_EMULATOR_FAULTS=F06,F10 "
    words = shlex.split(commands(seen.case, broken)["localize"])
    assert words == [
        "SPYRE_EMULATOR_FAULTS=F06,F10",
        "conformance",
        "localize",
        "granite-1.0-0b/causal-lm/spyre-eager-float16",
        "--drill",
        "*:place:scale=a.weight*1.05",
    ]


def test_a_reproducer_comes_with_its_command(seen, tmp_path):
    (source,) = runs(Spec(models=1, runs=1, configurations=1, all_pass=True))
    bundle = tmp_path / "case-slug"
    bundle.mkdir()
    (bundle / "reproduce.py").write_text("raise SystemExit(1)\n")
    failed = seen.model_copy(update={"verdict": seen.verdict.model_copy(update={"status": Status.FAIL})})
    render([replace(source, results=[failed], reproducers={seen.case.id: bundle})], tmp_path / "site")
    found = chunk(tmp_path / "site", "detail-0")[0]["cases"][0]["reproducer"]
    name = found["path"].removeprefix("repro/")
    assert (tmp_path / "site" / found["path"]).stat().st_size == found["size"]
    assert found["command"] == f"python -m zipfile -e {name} . && python case-slug/reproduce.py"


def test_links_of_a_run_directory_lead_nowhere(seen, tmp_path):
    """A run may come from another machine: what its links name is of this one."""
    (source,) = runs(Spec(models=1, runs=1, configurations=1, all_pass=True))
    secret, run = tmp_path / "secret", tmp_path / "run"
    secret.mkdir()
    (secret / "key").write_text("of this machine")
    bundle = run / "reproducers" / "slug"
    bundle.mkdir(parents=True)
    (bundle / "reproduce.py").write_text("raise SystemExit(1)\n")
    (bundle / "key").symlink_to(secret / "key")
    (run / "logs").symlink_to("logs")  # a loop
    failed = seen.model_copy(
        update={"verdict": seen.verdict.model_copy(update={"status": Status.FAIL}), "log": "logs/a.log"}
    )
    for folder, names in ((bundle, ["slug/reproduce.py"]), (run / "other", None)):
        if names is None:
            folder.symlink_to(secret)
        site = tmp_path / folder.name
        render([replace(source, results=[failed], directory=run, reproducers={seen.case.id: folder})], site)
        found = chunk(site, "detail-0")[0]["cases"][0]
        assert found.get("log") is None
        if names is None:
            assert found.get("reproducer") is None
        else:
            assert zipfile.ZipFile(site / found["reproducer"]["path"]).namelist() == names
