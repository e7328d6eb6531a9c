"""Cases from end to end, by the real command on a tiny trained model: each fault has its own outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records import CaseResult, Outcome, OutcomeKind, Role, Stage
from tests.conformance_site import Finished, Site

STAGES = ("load", "place", "compile", "run")
HANGS = {"timeouts": {"load": 60, "place": 60, "compile": 60, "run": 60}}


def hanging(stage: str) -> dict[str, object]:
    return {"timeouts": HANGS["timeouts"] | {stage: 1}}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def drilled(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Finished:
    """One run of healthy cases among cases that die in every way at every stage."""
    rows: dict[str, dict[str, object]] = {"healthy": {"axes": {"mode": ["eager", "compiled"]}}, "last": {}}
    drills = []
    for stage in STAGES:
        axes = {"axes": {"mode": ["compiled" if stage == "compile" else "eager"]}}
        for action in ("exit=7", "segfault", "abort", "hang", "raise=made up"):
            name = f"{action.partition('=')[0]}-{stage}"
            rows[name] = axes | (hanging(stage) if action == "hang" else {})
            drills += ["--drill", f"{name}/*:{stage}:{action}"]
    rows |= {"scaled": {}, "on-cpu": {}}
    drills += ["--drill", "scaled/*:place:scale=model.layers.1.mlp.down_proj.weight*1.05"]
    drills += ["--drill", "on-cpu/*:place:cpu"]
    site = Site(tmp_path_factory.mktemp("drilled"), cache).rows(rows)
    return site.run("run", *drills, "--workers", "2", "--retries", "0", "--localize", "0", timeout=600)


def test_healthy_cases_pass_beside_dying_ones(drilled: Finished) -> None:
    healthy = {name: told for name, told in drilled.told.items() if name.startswith(("healthy", "last"))}
    assert healthy == {
        "healthy/causal-lm/spyre-compiled-float16": "PASS completed compare",
        "healthy/causal-lm/spyre-eager-float16": "PASS completed compare",
        "last": "PASS completed compare",
    }
    assert drilled.stored.missing == ()
    assert drilled.stored.problems == ()
    assert drilled.errors == "", "nothing is left over that Python's own keeper of resources would complain of"


@pytest.mark.parametrize("stage", STAGES)
def test_each_death_at_each_stage_is_told(drilled: Finished, stage: str) -> None:
    raised = "compile_error" if stage == "compile" else "runtime_error"
    assert {name: told for name, told in drilled.told.items() if name.endswith(f"-{stage}")} == {
        f"exit-{stage}": f"FAIL crash {stage}",
        f"segfault-{stage}": f"FAIL crash {stage}",
        f"abort-{stage}": f"FAIL crash {stage}",
        f"hang-{stage}": f"FAIL timeout {stage}",
        f"raise-{stage}": f"FAIL {raised} {stage}",
    }
    results = drilled.results
    assert results[f"exit-{stage}"].outcome.exit_code == 7
    assert results[f"segfault-{stage}"].outcome.signal == "SIGSEGV"
    assert results[f"abort-{stage}"].outcome.signal == "SIGABRT"
    assert "made up" in results[f"raise-{stage}"].verdict.sentence
    assert "drill.py" in results[f"hang-{stage}"].outcome.detail, "the stacks of a hanging process are kept"


def test_a_parameter_wrong_on_the_device_alone_fails(drilled: Finished) -> None:
    result = drilled.results["scaled"]
    assert drilled.told["scaled"] == "FAIL completed compare"
    assert "drilled" in result.verdict.flags
    assert (drilled.directory / "tensors").is_dir()
    assert len(list((drilled.directory / "tensors").glob("scaled*"))) == 1, "tensors are kept for failures"
    assert len(list((drilled.directory / "tensors").glob("healthy*"))) == 0


def test_a_device_that_ran_nothing_proves_nothing(drilled: Finished) -> None:
    result = drilled.results["on-cpu"]
    assert result.verdict.status == "ERROR"
    assert "not_exercised" in result.verdict.sentence
    assert drilled.exit_status == 3


def test_the_run_says_what_it_is(drilled: Finished) -> None:
    run = drilled.stored.run
    assert run.exit_status == drilled.exit_status
    assert run.totals == {"PASS": 3, "FAIL": 21, "ERROR": 1}
    assert run.environment.workers == 2
    assert run.finished is not None
    assert set(run.seconds) == {"resolve", "load", "place", "compile", "run", "compare", "reference", "waiting", "wall"}
    assert "time: " in drilled.output


def test_every_observation_of_one_model_has_the_same_weights(drilled: Finished) -> None:
    digests = {o.weights_digest for r in drilled.results.values() for o in r.observations.values()}
    assert len(digests) == 1


def test_a_second_run_makes_no_reference_and_a_refreshed_one_does(drilled: Finished, cache: Path) -> None:
    site = Site(drilled.directory.parent, cache).rows({"healthy": {}})
    stored = sorted(str(path) for path in (cache / "references").rglob("*.safetensors"))
    again = site.run("again")
    result = again.results["healthy"]
    assert {role: o.cached for role, o in result.observations.items()} == {
        Role.REFERENCE: True,
        Role.CONTROL: True,
        Role.CANDIDATE: False,
    }
    assert sorted(str(path) for path in (cache / "references").rglob("*.safetensors")) == stored
    assert not list((again.directory / "logs").glob("*reference*")), "no reference process was started"
    first = drilled.results["healthy/causal-lm/spyre-eager-float16"]
    assert result.comparison == first.comparison, "the same comparison to the last bit"
    anew = site.run("anew", "--refresh-reference").results["healthy"]
    assert [o.cached for o in anew.observations.values()] == [False, False, False]
    assert anew.comparison == result.comparison


def test_an_altered_reference_is_no_device_failure(drilled: Finished, cache: Path) -> None:
    site = Site(drilled.directory.parent, cache).rows({"healthy": {}})
    for path in (cache / "references").rglob("outputs.safetensors"):
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
    altered = site.run("altered")
    assert (altered.exit_status, altered.told) == (3, {"healthy": "ERROR invalid_reference load"})
    assert "--refresh-reference" in altered.results["healthy"].verdict.sentence
    mended = site.run("mended", "--refresh-reference")
    assert (mended.exit_status, mended.told) == (0, {"healthy": "PASS completed compare"})


def test_a_checkpoint_that_is_not_there(tmp_path: Path, cache: Path) -> None:
    site = Site(tmp_path, cache).rows({"healthy": {}, "gone": {"source": {"folder": "nowhere"}}})
    finished = site.run("run")
    assert finished.told == {"healthy": "PASS completed compare", "gone": "ERROR invalid_checkpoint resolve"}
    assert finished.results["gone"].outcome == Outcome(
        kind=OutcomeKind.INVALID_CHECKPOINT,
        stage=Stage.RESOLVE,
        message=finished.results["gone"].outcome.message,
    )
    assert finished.exit_status == 3


@pytest.fixture(scope="module")
def retried(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Finished:
    """Deaths once and for ever, in the candidate and in a reference of its own."""
    others = {"inputs": {"texts": ["You may reproduce and distribute copies of the Work"], "decode_steps": 1}}
    site = Site(tmp_path_factory.mktemp("retried"), cache).rows(
        {"once": {}, "always": {}, "wrong": {}, "twice": {}, "reference": others}
    )
    drills = ("once/*:run:segfault@1", "always/*:run:kill", "wrong/*:run:raise=no", "twice/*:load:device_error@1")
    arguments = [word for drill in (*drills, "reference/reference/*:run:abort@1") for word in ("--drill", drill)]
    return site.run("run", *arguments, "--localize", "0")


def ends(result: CaseResult) -> list[str]:
    return [f"{attempt.what} {attempt.outcome.kind}" for attempt in result.attempts]


def test_a_crash_and_then_a_pass_is_flaky_and_both_are_kept(retried: Finished) -> None:
    result = retried.results["once"]
    assert retried.told["once"] == "PASS completed compare"
    assert "flaky" in result.verdict.flags
    assert ends(result) == ["candidate crash", "candidate completed"]
    logs = [(retried.directory / str(attempt.log)).read_text() for attempt in result.attempts]
    assert "Segmentation fault" in logs[0]
    assert "Segmentation fault" not in logs[1]
    assert "[drilled" in retried.output or "flaky" in retried.output


def test_retries_are_bounded_and_do_not_hide_what_fails_for_ever(retried: Finished) -> None:
    assert retried.told["always"] == "FAIL killed run"
    assert ends(retried.results["always"]) == ["candidate killed", "candidate killed"]
    assert "flaky" not in retried.results["always"].verdict.flags


def test_what_chance_cannot_explain_is_not_tried_again(retried: Finished) -> None:
    assert retried.told["wrong"] == "FAIL runtime_error run"
    assert ends(retried.results["wrong"]) == ["candidate runtime_error"]


def test_a_device_error_of_a_living_device_is_tried_again(retried: Finished) -> None:
    assert retried.told["twice"] == "PASS completed compare"
    assert ends(retried.results["twice"]) == ["candidate device_error", "candidate completed"]


def test_a_reference_that_crashed_once_is_made_again(retried: Finished) -> None:
    result = retried.results["reference"]
    assert retried.told["reference"] == "PASS completed compare"
    assert ends(result) == ["reference crash", "reference completed", "candidate completed"]
    assert "flaky" in result.verdict.flags
    assert retried.exit_status == 1


def test_a_dead_device_is_one_root_cause(tmp_path: Path, cache: Path) -> None:
    site = Site(tmp_path, cache).rows({"a": {}, "b": {}, "c": {}, "on-cpu": {"axes": {"target": ["cpu"]}}})
    drills = ("--drill", "a/*:run:device_error", "--drill", "probe/spyre:place:device_error=card lost")
    finished = site.run("run", *drills, "--workers", "1", "--localize", "0")
    assert finished.told == {
        "a": "FAIL device_error run",
        "b": "NOTRUN unavailable place",
        "c": "NOTRUN unavailable place",
        "on-cpu": "PASS completed compare",
    }
    assert finished.results["b"].outcome.message == (
        "blocked: the device spyre does not answer since a/causal-lm/spyre-eager-float16 ended with device_error "
        "(AcceleratorError: card lost). Reset the device and go on with --resume."
    )
    again = site.run("run", "--resume", "--workers", "1")
    assert again.told == {
        "a": "FAIL device_error run",
        "b": "PASS completed compare",
        "c": "PASS completed compare",
        "on-cpu": "PASS completed compare",
    }
