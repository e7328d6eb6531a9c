"""Tests of attribution: what differs, and which difference is named first."""

from __future__ import annotations

from harness.history import changes, explain, explain_change
from harness.records import Package, Status
from tests.history.script import environment, night, sample


def packages(**versions: str) -> tuple[Package, ...]:
    return tuple(Package(name=name.replace("_", "-"), version=version) for name, version in versions.items())


def names(before: dict[str, object], after: dict[str, object], **rest: object) -> list[str]:
    return [s.name for s in explain(environment(**before), environment(**after), **rest)]


def test_equal_environments_have_no_suspect() -> None:
    assert names({}, {}) == []


def test_what_is_near_the_numbers_comes_first() -> None:
    before = {"packages": packages(torch="2.13.0", transformers="5.24.0", numpy="2.4.6", torch_spyre="1.0")}
    after = {
        "packages": packages(torch="2.14.0", transformers="5.24.1", numpy="2.4.7", torch_spyre="1.0.1"),
        "commit": "abc",
        "memory": 1,
        "variables": {"SPYRE_EMULATOR_NUMERICS": "exact", "HF_HOME": "/x"},
        "threads_per_case": 2,
    }
    assert names(before, after) == [
        "torch-spyre",
        "torch",
        "SPYRE_EMULATOR_NUMERICS",
        "transformers",
        "commit",
        "HF_HOME",
        "threads_per_case",
        "numpy",
        "memory",
    ]


def test_faults_switched_on_explain_everything() -> None:
    device = {"kind": "emulator", "version": "1", "faults": "mm.scale"}
    (first, second) = explain(environment(), environment(torch="3.0", device=device))
    assert (first.kind, first.name, first.before, first.after) == ("fault", "device faults", "none", "mm.scale")
    assert second.name == "torch"
    assert str(second) == "torch 2.13.0 -> 3.0: major release of a package near the numbers"


def test_a_package_that_appears_or_goes_is_a_difference() -> None:
    assert names({"packages": ()}, {"packages": packages(flash="1")}) == ["flash"]
    assert names({"packages": packages(flash="1")}, {"packages": ()}) == ["flash"]


def test_slower_points_to_threads_and_host() -> None:
    runs = [night(at, sample()) for at in range(9)]
    slow = environment(torch="2.13.1", threads_per_case=1, workers=8, cpu="another")
    runs += [night(at, sample(seconds=30.0), env=slow) for at in (9, 10)]
    (change,) = changes(runs[:-1], runs[-1])
    assert change.metric == "run_seconds"
    assert [suspect.name for suspect in explain_change(runs, change)][:3] == ["cpu", "workers", "torch"]


def test_a_suspect_with_an_alibi_comes_later() -> None:
    def env(torch: str, transformers: str) -> dict[str, object]:
        return {"env": environment(packages=packages(torch=torch, transformers=transformers))}

    runs = [
        night(0, sample(), **env("2.13.0", "5.24.0")),
        night(1, sample(), **env("2.13.1", "5.24.0")),
        night(2, sample(), **env("2.13.2", "5.24.0")),
        night(3, sample(status=Status.FAIL), **env("2.13.3", "5.24.1")),
    ]
    (change,) = changes(runs[:-1], runs[-1])
    first, second = explain_change(runs, change)
    assert (first.name, second.name) == ("transformers", "torch")
    assert second.reason.endswith("it also changed 2 times without effect")


def test_other_weights_are_named_before_any_package() -> None:
    runs = [
        night(0, sample()),
        night(1, sample(status=Status.FAIL, checkpoint="d"), env=environment(torch="2.14.0")),
    ]
    (change,) = changes(runs[:1], runs[1])
    assert [s.name for s in explain_change(runs, change)] == ["checkpoint", "torch"]


def test_a_change_whose_runs_are_not_at_hand_has_no_suspect() -> None:
    runs = [night(0, sample()), night(1, sample(status=Status.FAIL), env=environment(torch="2.14.0"))]
    (change,) = changes(runs[:1], runs[1])
    assert explain_change(runs[1:], change) == ()
