"""What a run directory promises: nothing lost, nothing torn, nothing believed that cannot be true."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import resource
import signal
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

from harness.errors import StoreError, UsageError
from harness.records import (
    RUN_SCHEMA,
    Case,
    CaseResult,
    Comparison,
    DeviceUse,
    Dtype,
    Environment,
    Inputs,
    Mode,
    Observation,
    OpState,
    OpUse,
    Outcome,
    OutcomeKind,
    OutputComparison,
    PairNumbers,
    Role,
    Run,
    Status,
    Task,
    TensorSpec,
    Verdict,
    WheelSource,
)
from harness.store import (
    CASES_FILE,
    DAMAGED_FILE,
    RUN_FILE,
    RunWriter,
    merge,
    new_run_id,
    read_run,
    run_id_for,
    write_atomically,
)

NOON = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
LATER = datetime(2026, 1, 31, 13, 0, 0, tzinfo=UTC)


def case(model: str) -> Case:
    return Case(
        id=f"{model}/causal-lm/spyre-eager-float16",
        model=model,
        task=Task.CAUSAL_LM,
        target="spyre",
        mode=Mode.EAGER,
        dtype=Dtype.FLOAT16,
        source=WheelSource(wheel="tiny==1.0", path="tiny", sha256="0" * 64),
        inputs=Inputs(ids=((1, 2),)),
    )


def result(model: str, status: Status = Status.PASS, sentence: str = "fine", **more: object) -> CaseResult:
    return CaseResult(
        case=case(model),
        outcome=Outcome(kind=OutcomeKind.COMPLETED),
        verdict=Verdict(status=status, sentence=sentence),
        started=NOON,
        finished=NOON,
        **more,
    )


def run_of(*models: str, **more: object) -> Run:
    environment = Environment(python="3.11.7", platform="Linux", machine="x86_64", cpu="any", cores=2, memory=1 << 34)
    fields = {"run_id": "20260131T120000Z-abcdef", "started": NOON, "environment": environment}
    return Run(**(fields | {"plan": tuple(case(name) for name in models)} | more))


def statuses(directory: Path) -> dict[str, str]:
    return {r.case.model: f"{r.verdict.status} {r.verdict.sentence}" for r in read_run(directory).results}


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, run_of("a", "b"))
    writer.append(result("a"))
    writer.append(result("b", Status.FAIL, "wrong at step 3"))
    written = writer.finish(LATER, 1)
    stored = read_run(tmp_path)
    assert stored.run == written == run_of("a", "b", finished=LATER, exit_status=1, totals={"PASS": 1, "FAIL": 1})
    assert stored.results == (result("a"), result("b", Status.FAIL, "wrong at step 3"))
    assert (stored.problems, stored.missing) == ((), ())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_run_id_sorts_by_time() -> None:
    early, late = new_run_id(NOON), new_run_id(LATER)
    assert early < late
    assert early.startswith("20260131T120000Z-")
    assert len(early) == len("20260131T120000Z-abcdef")


def test_a_directory_that_is_named_by_an_id_holds_that_run() -> None:
    assert run_id_for(Path("reports/runs/20260131T120000Z-abcdef"), LATER) == "20260131T120000Z-abcdef"
    assert run_id_for(Path("reports/runs/nightly"), NOON).startswith("20260131T120000Z-")


def test_what_was_planned_and_has_no_result_is_named(tmp_path: Path) -> None:
    RunWriter(tmp_path, run_of("a", "b", "c")).append(result("b"))
    assert read_run(tmp_path).missing == (case("a").id, case("c").id)
    assert read_run(tmp_path).run.finished is None


def test_a_resumed_run_sets_damaged_lines_aside(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, run_of("a", "b", "c"))
    for name in "abc":
        writer.append(result(name))
    writer.close()
    path = tmp_path / CASES_FILE
    first, second, third = path.read_bytes().splitlines(keepends=True)
    damaged = second[:50] + b"\x00\xff" + second[52:]
    path.write_bytes(first + damaged + third[:-9])
    stored = read_run(tmp_path)
    assert [problem.split(":")[1] for problem in stored.problems] == ["2", "3"]
    with contextlib.closing(RunWriter(tmp_path, stored.run)) as again:
        assert statuses(tmp_path) == {"a": "PASS fine"}
        again.append(result("b"))
        again.append(result("c"))
    assert read_run(tmp_path).problems == ()
    assert statuses(tmp_path) == {"a": "PASS fine", "b": "PASS fine", "c": "PASS fine"}
    assert (tmp_path / DAMAGED_FILE).read_bytes() == damaged


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
def test_a_torn_last_line_costs_that_case_alone(tmp_path: Path, kept: int) -> None:
    """Killed in the middle of a line, at its first byte, its last byte, or just before its line end."""
    writer = RunWriter(tmp_path, run_of("a", "b"))
    writer.append(result("a"))
    whole = (tmp_path / CASES_FILE).read_bytes()
    writer.append(result("b"))
    line = (tmp_path / CASES_FILE).read_bytes()[len(whole) :]
    (tmp_path / CASES_FILE).write_bytes(whole + line[:kept])
    stored = read_run(tmp_path)
    if kept == -1:
        assert statuses(tmp_path) == {"a": "PASS fine", "b": "PASS fine"}  # all of it is there but the line end
    else:
        assert statuses(tmp_path) == {"a": "PASS fine"}
        torn = ("cases.jsonl:2: torn last line, written when the run was killed",) if kept else ()
        assert stored.problems == torn
        assert stored.missing == (case("b").id,)
    writer.close()
    again = RunWriter(tmp_path, stored.run)
    if stored.missing:
        again.append(result("b"))
    again.finish(LATER, 0)
    assert statuses(tmp_path) == {"a": "PASS fine", "b": "PASS fine"}
    assert read_run(tmp_path).problems == ()


def test_a_damaged_line_in_the_middle_is_named_and_skipped(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, run_of("a", "b"))
    writer.append(result("a"))
    writer.append(result("b"))
    first, second = (tmp_path / CASES_FILE).read_bytes().splitlines()
    damaged = first.replace(b'"float16"', b'"float17"')
    (tmp_path / CASES_FILE).write_bytes(damaged + b"\n\n" + second + b"\n")
    stored = read_run(tmp_path)
    assert statuses(tmp_path) == {"b": "PASS fine"}
    assert stored.missing == (case("a").id,)
    (problem,) = stored.problems
    assert problem.startswith("cases.jsonl:1: case.dtype: Input should be")


def test_the_last_result_of_a_case_holds(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, run_of("a"))
    writer.append(result("a", Status.NOTRUN, "the Hub was away"))
    writer.append(result("a", Status.PASS, "second time"))
    assert writer.finish(LATER, 0).totals == {Status.PASS: 1}
    assert statuses(tmp_path) == {"a": "PASS second time"}


def test_a_result_that_nobody_planned_is_a_problem(tmp_path: Path) -> None:
    RunWriter(tmp_path, run_of("a")).append(result("intruder"))
    assert read_run(tmp_path).problems == (f"{case('intruder').id}: has a result but was not planned",)


def _write_until_full(directory: str, size: int, answers: object) -> None:
    """In a process of its own: a limit of the file size stands for the disk's end."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    writer = RunWriter(Path(directory), run_of(*(f"m{i}" for i in range(50))))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        for i in range(50):
            writer.append(result(f"m{i}"))
    except StoreError as error:
        answers.put(str(error))
    try:
        write_atomically(Path(directory) / RUN_FILE, b"x" * 2 * size)
    except OSError as error:
        answers.put(error.strerror)


def test_a_full_disk_keeps_what_was_written(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    size = 3 * len(result("m0").model_dump_json()) + 100
    process = context.Process(target=_write_until_full, args=(str(tmp_path), size, answers))
    process.start()
    told, replaced = answers.get(timeout=60), answers.get(timeout=60)
    process.join(60)
    stored = read_run(tmp_path)
    assert [r.case.model for r in stored.results] == ["m0", "m1", "m2"]
    assert stored.problems == ()  # no torn line
    assert told == (
        f"{tmp_path / CASES_FILE}: cannot write the result of {case('m3').id}: File too large. "
        "Results before it are kept; free space and use --resume."
    )
    assert replaced == "File too large"
    assert len(stored.run.plan) == 50, "run.json is as it was"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_an_atomic_write_replaces_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.json"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(TypeError):
        write_atomically(path, "no bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def edit(path: Path, **changes: object) -> None:
    data = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in (data | changes).items() if value != "remove"}))


def test_an_older_file_is_read_with_defaults(tmp_path: Path) -> None:
    RunWriter(tmp_path, run_of("a")).append(result("a"))
    edit(tmp_path / RUN_FILE, selection="remove", totals="remove", exit_status="remove", manifest_digest="remove")
    line = json.loads((tmp_path / CASES_FILE).read_text())
    for name in ("attempts", "seconds", "log", "worker"):
        line.pop(name, None)
    (tmp_path / CASES_FILE).write_text(json.dumps(line) + "\n")
    assert read_run(tmp_path).run == run_of("a")
    assert read_run(tmp_path).results == (result("a"),)


def test_a_newer_schema_is_refused_by_name(tmp_path: Path) -> None:
    RunWriter(tmp_path, run_of("a"))
    edit(tmp_path / RUN_FILE, schema_version=RUN_SCHEMA + 1, something_new=[1])
    with pytest.raises(StoreError) as caught:
        read_run(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / RUN_FILE}: schema {RUN_SCHEMA + 1} is newer than this harness understands ({RUN_SCHEMA}). "
        "Upgrade the harness."
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not JSON"),
        (b'{"schema_version": 1, "run_id"', "not JSON"),
        (b"[1, 2]", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"{}", "no schema_version"),
        (b'{"schema_version": "1"}', "no schema_version"),
        (b'{"schema_version": 1}', "run_id: Field required"),
    ],
)
def test_a_damaged_run_file_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / RUN_FILE).write_bytes(content)
    with pytest.raises(StoreError, match=told):
        read_run(tmp_path)


def test_half_of_a_run_directory_is_told_from_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere: there is no such directory"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="it is no run directory"):
        read_run(tmp_path)
    RunWriter(tmp_path, run_of("a")).append(result("a"))
    (tmp_path / RUN_FILE).rename(tmp_path / "away")
    with pytest.raises(UsageError, match=r"run.json is missing; cases.jsonl is there: the directory is half gone"):
        read_run(tmp_path)
    (tmp_path / "away").rename(tmp_path / RUN_FILE)
    (tmp_path / CASES_FILE).unlink()
    stored = read_run(tmp_path)
    assert (stored.results, stored.problems, stored.missing) == ((), ("cases.jsonl: missing",), (case("a").id,))


def shard(directory: Path, plan: tuple[str, ...], **results: str) -> Path:
    writer = RunWriter(directory, run_of(*plan))
    for model, sentence in results.items():
        writer.append(result(model, sentence=sentence))
    writer.finish(LATER, 0)
    return directory


def test_shards_merge_by_union(tmp_path: Path) -> None:
    one = shard(tmp_path / "1", ("b", "a"), a="one", b="one")
    two = shard(tmp_path / "2", ("c",), c="two")
    merged = merge([two, one], tmp_path / "out")
    assert statuses(tmp_path / "out") == {"a": "PASS one", "b": "PASS one", "c": "PASS two"}
    assert [planned.model for planned in merged.run.plan] == ["a", "b", "c"]
    assert (merged.run.finished, merged.run.exit_status, merged.missing) == (LATER, 0, ())
    with pytest.raises(UsageError, match="holds a run already"):
        merge([two, one], tmp_path / "out")


def test_equal_results_of_overlapping_shards_are_one(tmp_path: Path) -> None:
    one = shard(tmp_path / "1", ("a", "b"), a="same")
    two = shard(tmp_path / "2", ("a", "b"), a="same", b="here")
    assert [r.case.model for r in merge([one, two], tmp_path / "out").results] == ["a", "b"]


def test_all_contradicting_results_are_named_and_refused(tmp_path: Path) -> None:
    one = shard(tmp_path / "1", ("a", "b", "c"), a="one", b="same", c="one")
    two = shard(tmp_path / "2", ("a", "b", "c"), a="two", b="same", c="two")
    with pytest.raises(StoreError) as caught:
        merge([one, two], tmp_path / "out")
    assert str(caught.value) == (
        f"{case('a').id}: {one} and {two} have different results\n"
        f"{case('c').id}: {one} and {two} have different results\n"
        "Shards must not overlap: run them with the same manifest and --shard I/N."
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("first", [True, False])
def test_a_shard_that_ran_again_replaces_what_could_not_run(tmp_path: Path, first: bool) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    gone = Outcome(kind=OutcomeKind.UNAVAILABLE)
    failed = result("a", Status.NOTRUN, "away").model_copy(update={"outcome": gone})
    for directory, told in ((one, failed), (two, result("a", sentence="there"))):
        writer = RunWriter(directory, run_of("a"))
        writer.append(told.model_copy(update={"log": "logs/a.log"}))
        writer.finish(LATER, 0)
        (directory / "logs" / "a.log").write_text(told.verdict.sentence)
        (directory / "tensors").mkdir()
        (directory / "tensors" / f"{directory.name}.safetensors").write_text("bytes")
    merge([one, two] if first else [two, one], tmp_path / "out")
    assert statuses(tmp_path / "out") == {"a": "PASS there"}
    assert (tmp_path / "out" / "logs" / "a.log").read_text() == "there"
    assert sorted(path.name for path in (tmp_path / "out" / "tensors").iterdir()) == ["1.safetensors", "2.safetensors"]


def test_a_shard_gives_and_takes_no_file_outside_of_it(tmp_path: Path) -> None:
    """Shards come from other machines: their links and their results may name anything."""
    secret, victim = tmp_path / "secret", tmp_path / "victim"
    secret.write_text("of this machine")
    victim.write_text("mine")
    one, two = tmp_path / "shards" / "1", tmp_path / "shards" / "2"
    for directory, name, log in ((one, "a", "../victim"), (two, "b", str(victim))):
        writer = RunWriter(directory, run_of("a", "b"))
        writer.append(result(name).model_copy(update={"log": log}))
        writer.finish(LATER, 0)
        (directory / "logs" / "link.log").symlink_to(secret)
        (directory / "tensors").symlink_to(tmp_path)
    (tmp_path / "shards" / "victim").write_text("planted")
    merged = merge([one, two], tmp_path / "out")
    assert merged.missing == ()
    assert (victim.read_text(), list((tmp_path / "out" / "logs").iterdir())) == ("mine", [])
    assert not (tmp_path / "out" / "tensors").exists()


def test_what_is_damaged_in_a_shard_is_a_problem_of_the_merged_run(tmp_path: Path) -> None:
    one = shard(tmp_path / "1", ("a",), a="one")
    (one / CASES_FILE).write_bytes((one / CASES_FILE).read_bytes() + b"\xff\n")
    (problem,) = merge([one], tmp_path / "out").problems
    assert problem.startswith(f"{one}: cases.jsonl:2: ")


def test_parts_of_different_runs_do_not_merge(tmp_path: Path) -> None:
    one = shard(tmp_path / "1", ("a",), a="one")
    RunWriter(tmp_path / "2", run_of("b", manifest_digest="f" * 64)).close()
    with pytest.raises(StoreError, match=f"different manifests .*{tmp_path / '2'}: ffffffffffff$"):
        merge([one, tmp_path / "2"], tmp_path / "out")
    RunWriter(tmp_path / "3", run_of("c", expectations="validate")).close()
    with pytest.raises(StoreError, match=f"different modes of expectations .*{tmp_path / '3'}: validate$"):
        merge([one, tmp_path / "3"], tmp_path / "out")


def test_a_lost_shard_leaves_its_cases_missing(tmp_path: Path) -> None:
    """Whatever exit statuses say: the plan decides."""
    one = shard(tmp_path / "1", ("a",), a="one")
    unfinished = tmp_path / "2"
    RunWriter(unfinished, run_of("b", "c")).append(result("b"))
    merged = merge([one, unfinished], tmp_path / "out")
    assert merged.missing == (case("c").id,)
    assert (merged.run.finished, merged.run.exit_status) == (None, None)
    with pytest.raises(UsageError, match="no run directory given"):
        merge([], tmp_path / "nothing")


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, run_of("a"))
    with pytest.raises(StoreError, match="another process is writing this run"):
        RunWriter(tmp_path, run_of("b"))
    assert read_run(tmp_path).run == run_of("a")
    writer.close()
    RunWriter(tmp_path, run_of("a")).close()


def test_secrets_are_taken_out_of_what_a_run_says_of_itself(tmp_path: Path) -> None:
    run = run_of("a", selection="-k SECRET")
    variables = {"HF_ENDPOINT": "http://me:SECRET@mirror"}
    run = run.model_copy(update={"environment": run.environment.model_copy(update={"variables": variables})})
    RunWriter(tmp_path, run, clean=lambda text: text.replace("SECRET", "***")).finish(LATER, 0)
    stored = read_run(tmp_path).run
    assert (stored.selection, stored.environment.variables) == ("-k ***", {"HF_ENDPOINT": "http://me:***@mirror"})
    assert (stored.plan, stored.started) == (run.plan, run.started)


def test_secrets_are_taken_out_of_every_text_but_the_case(tmp_path: Path) -> None:
    told = result("a", Status.FAIL, 'SECRET "quoted" failed', log="logs/SECRET").model_copy(
        update={"outcome": Outcome(kind=OutcomeKind.CRASH, message="with SECRET\n", detail="é\x00 SECRET")}
    )
    writer = RunWriter(tmp_path, run_of("a"), clean=lambda text: text.replace("SECRET", "***"))
    writer.append(told)
    (stored,) = read_run(tmp_path).results
    assert stored == told.model_copy(
        update={
            "verdict": Verdict(status=Status.FAIL, sentence='*** "quoted" failed'),
            "outcome": Outcome(kind=OutcomeKind.CRASH, message="with ***\n", detail="é\x00 ***"),
            "log": "logs/***",
        }
    )
    assert stored.case == told.case


def test_tables_hold_ops_and_numbers(tmp_path: Path) -> None:
    mm = TensorSpec(shape=(2, 3), strides=(3, 1), dtype="float16")
    device = DeviceUse(
        ops_on_device=2,
        ops=(OpUse(op="aten.mm.default", state=OpState.SPYRE_ENABLED, count=2, operands=(mm, mm)),),
    )
    seen = Observation(
        role=Role.CANDIDATE,
        target="spyre",
        dtype=Dtype.FLOAT16,
        mode=Mode.EAGER,
        threads=1,
        weights_digest="ab",
        device=device,
    )
    logits = OutputComparison(
        name="logits",
        shape=(2,),
        elements=2,
        candidate=PairNumbers(finite_pairs=2, cosine=1.0),
        control=PairNumbers(finite_pairs=2),
    )
    told = result("a", comparison=Comparison(outputs=(logits,)), observations={Role.CANDIDATE: seen})
    writer = RunWriter(tmp_path, run_of("a"))
    writer.append(told)
    writer.finish(LATER, 0)
    ops = pd.read_parquet(tmp_path / "ops.parquet").to_dict("records")
    assert ops == [
        {
            "case": case("a").id,
            "model": "a",
            "role": "candidate",
            "op": "aten.mm.default",
            "state": "spyre_enabled",
            "count": 2,
            "shapes": "[[2, 3], [2, 3]]",
            "strides": "[[3, 1], [3, 1]]",
            "dtypes": '["float16", "float16"]',
        }
    ]
    metrics = pd.read_parquet(tmp_path / "metrics.parquet")
    chosen = metrics[metrics.metric.isin(["cosine", "finite_pairs"])]
    assert chosen[["role", "metric", "value"]].values.tolist() == [
        ["candidate", "finite_pairs", 2.0],
        ["candidate", "cosine", 1.0],
        ["control", "finite_pairs", 2.0],
    ]
