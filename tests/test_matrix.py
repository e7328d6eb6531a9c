"""Tests of planning, selecting, sharding, naming and sizing cases."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import manifest, matrix
from harness.errors import UsageError
from harness.records import Case, Inputs, Manifest

ROOT = Path(__file__).parent.parent
SHA = "0123456789abcdef0123456789abcdef01234567"


def manifest_of(models: dict[str, object], **rest: object) -> Manifest:
    data = {
        "version": 1,
        "defaults": {"inputs": {"causal-lm": {"texts": ["Once upon a time"], "decode_steps": 4}}},
        "models": models,
        **rest,
    }
    return Manifest.model_validate_json(json.dumps(data), strict=True)


def hub(**rest: object) -> dict[str, object]:
    return {"task": "causal-lm", "source": {"hub": "org/model", "revision": SHA}, **rest}


def models(count: int) -> Manifest:
    return manifest_of({f"m{i:03}": hub(parameters=1000 + i, licence="l" * 300) for i in range(count)})


def ids(cases: tuple[Case, ...]) -> list[str]:
    return [case.id for case in cases]


def test_plan_is_rows_times_axes_in_order() -> None:
    axes = {"target": ["spyre", "cpu"], "mode": ["eager"], "dtype": ["float16"], "shape": ["natural", "b2s8"]}
    cases = matrix.plan(manifest_of({"b": hub(axes={"shape": ["b1s4"]}), "a": hub()}, axes=axes))
    assert ids(cases) == [
        "a/causal-lm/cpu-eager-float16",
        "a/causal-lm/cpu-eager-float16-b2s8",
        "a/causal-lm/spyre-eager-float16",
        "a/causal-lm/spyre-eager-float16-b2s8",
        "b/causal-lm/cpu-eager-float16-b1s4",
        "b/causal-lm/spyre-eager-float16-b1s4",
    ]
    assert [str(case.shape) for case in cases[:2]] == ["None", "b2s8"]


def test_checks_are_cases_of_their_own_and_those_that_set_the_shape_have_the_natural_one() -> None:
    axes = {"mode": ["eager"], "shape": ["natural", "b2s8"], "check": ["outputs", "sampling", "left-padding"]}
    cases = matrix.plan(manifest_of({"a": hub()}, axes=axes))
    assert ids(cases) == [
        "a/causal-lm/spyre-eager-float16",
        "a/causal-lm/spyre-eager-float16-b2s8",
        "a/causal-lm/spyre-eager-float16-b2s8-sampling",
        "a/causal-lm/spyre-eager-float16-left-padding",
        "a/causal-lm/spyre-eager-float16-sampling",
    ]
    assert [case.variant for case in cases] == ["", "b2s8", "b2s8-sampling", "left-padding", "sampling"]


def test_an_entry_can_speak_of_one_check() -> None:
    row = hub(
        axes={"mode": ["eager"], "check": ["outputs", "left-padding"]},
        exclude=[{"check": "left-padding", "reason": "masks are not lowered yet"}],
    )
    cases = matrix.plan(manifest_of({"a": row}))
    assert [(case.check, case.excluded) for case in cases] == [
        ("outputs", None),
        ("left-padding", "masks are not lowered yet"),
    ]


def test_a_profile_can_plan_some_values_of_the_axes() -> None:
    axes = {"mode": ["eager", "compiled"], "check": ["outputs", "sampling"]}
    few = {"few": {"axes": {"mode": ["eager"], "check": ["outputs"]}}}
    cases = matrix.plan(manifest_of({"a": hub()}, axes=axes, profiles=few), profile="few")
    assert ids(cases) == ["a/causal-lm/spyre-eager-float16"]


def test_plan_merges_what_a_row_leaves_open() -> None:
    row = hub(
        inputs={"texts": ["Mine"]},
        tolerance={"cosine": 0.9, "reason": "router near ties"},
        timeouts={"run": 5},
        family="f",
    )
    defaults = {
        "inputs": {"causal-lm": {"texts": ["Theirs"], "decode_steps": 4}},
        "tolerance": {"causal-lm": {"kl": 0.5, "cosine": 0.99, "reason": "half precision"}},
        "timeouts": {"load": 7},
    }
    case = matrix.plan(manifest_of({"m": row}, defaults=defaults))[0]
    assert case.inputs == Inputs(texts=("Mine",), decode_steps=4)
    assert (case.tolerance.cosine, case.tolerance.kl) == (0.9, 0.5)
    assert case.tolerance.reason == "half precision; router near ties"
    assert (case.timeouts.run, case.timeouts.load, case.timeouts.compile) == (5, 7, 900)
    assert (case.family, case.parameters) == ("f", None)


def test_a_row_without_texts_keeps_the_default_s() -> None:
    case = matrix.plan(manifest_of({"m": hub(inputs={"decode_steps": 0})}))[0]
    assert case.inputs == Inputs(texts=("Once upon a time",), decode_steps=0)


def test_excluded_cases_are_planned_and_the_first_expectation_holds(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    path.write_text(
        f"""\
version: 1
models:
  m:
    task: causal-lm
    source: {{hub: org/m, revision: "{SHA}"}}
    inputs: {{texts: [Hello]}}
    axes: {{dtype: [float16, bfloat16]}}
    exclude: [{{mode: compiled, dtype: bfloat16, reason: compiler hangs}}]
    expect:
      - {{outcome: crash, mode: eager, dtype: bfloat16, reason: known crash}}
      - {{outcome: outside_rule, reason: wrong numbers}}
"""
    )
    found = {case.id.rpartition("/")[2]: case for case in matrix.plan(manifest.load(path))}
    told = {
        name: (case.excluded, case.expectation and case.expectation.outcome, case.expectation_at)
        for name, case in found.items()
    }
    assert told == {
        "spyre-compiled-bfloat16": ("compiler hangs", "outside_rule", "models.yaml:11"),
        "spyre-compiled-float16": (None, "outside_rule", "models.yaml:11"),
        "spyre-eager-bfloat16": (None, "crash", "models.yaml:10"),
        "spyre-eager-float16": (None, "outside_rule", "models.yaml:11"),
    }


def test_profiles_plan_their_own_rows_only() -> None:
    own = manifest.load(ROOT / "models.yaml")
    smoke = matrix.plan(own, profile="smoke")
    assert ids(smoke) == [
        "minilm-l6-v2/embedding/spyre-compiled-float16",
        "minilm-l6-v2/embedding/spyre-eager-float16",
        "rxnfp-classifier/sequence-classification/spyre-compiled-float16",
        "rxnfp-classifier/sequence-classification/spyre-eager-float16",
        "rxnmapper/masked-lm/spyre-compiled-float16",
        "rxnmapper/masked-lm/spyre-eager-float16",
        "smollm2-135m/causal-lm/spyre-compiled-float16",
        "smollm2-135m/causal-lm/spyre-eager-float16",
    ]
    assert len(matrix.plan(own, profile="nightly")) == len(matrix.plan(own)) == 40
    with pytest.raises(UsageError, match=r"no profile is called 'nigthly' .* did you mean 'nightly'"):
        matrix.plan(own, profile="nigthly")


def test_a_value_twice_in_an_axis_is_refused() -> None:
    with pytest.raises(ValueError, match="eager is there twice; keep one"):
        manifest_of({"m": hub(axes={"mode": ["eager", "eager"]})})


def test_select() -> None:
    cases = matrix.plan(manifest.load(ROOT / "models.yaml"))
    left = matrix.select(cases, models=["qwen3-0.6b", "rxnmapper"], modes=["eager"], keyword="not embedding")
    assert ids(left) == ["qwen3-0.6b/causal-lm/spyre-eager-float16", "rxnmapper/masked-lm/spyre-eager-float16"]
    assert matrix.select(cases) == cases
    one = "smollm2-135m/causal-lm/spyre-eager-float16"
    assert ids(matrix.select(cases, keyword=f"[{one}]")) == [one], "its checks have longer names"
    sampled = matrix.select(cases, models=["smollm2-135m"], modes=["eager"], checks=["sampling"])
    assert ids(sampled) == [f"{one}-sampling"]
    assert ids(matrix.select(cases, tasks=["masked-lm"], targets=["spyre"], dtypes=["float16"])) == [
        "rxnmapper/masked-lm/spyre-compiled-float16",
        "rxnmapper/masked-lm/spyre-eager-float16",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"models": ["qwen3-0.6"]}, "no model is called 'qwen3-0.6' in what is planned; did you mean 'qwen3-0.6b'?"),
        ({"targets": ["cuda"]}, "no target is called 'cuda' in what is planned; there are: spyre"),
        ({"modes": ["eagre"]}, "no mode is called 'eagre' in what is planned; did you mean 'eager'?"),
        ({"keyword": "nothing-like-it"}, "no case matches -k 'nothing-like-it'; `conformance list` shows"),
        (
            {"models": ["rxnmapper"], "tasks": ["embedding"]},
            "no case matches --model rxnmapper --task embedding; `conformance list` shows what there is",
        ),
    ],
)
def test_selections_that_select_nothing(options: dict[str, object], said: str) -> None:
    cases = matrix.plan(manifest.load(ROOT / "models.yaml"))
    with pytest.raises(UsageError) as caught:
        matrix.select(cases, **options)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "name", "matches"),
    [
        ("granite", "GRANITE-3/x", True),
        ("a and b", "a", False),
        ("a or b and c", "a", True),
        ("(a or b) and c", "a", False),
        ("not a", "b", True),
        ("not not a", "a", True),
        ("not (a or b)", "c", True),
        ("spyre-eager", "m/t/spyre-eager-float16", True),
        ("android", "android", True),
        ("((a))", "a", True),
    ],
)
def test_keyword(expression: str, name: str, matches: bool) -> None:
    assert matrix.keyword_filter(expression)(name) is matches


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("a and", "expected a part of a case id, 'not' or '(' at column 6"),
        ("a b", "expected 'and', 'or' or the end at column 3"),
        ("(a", "expected ')' at column 3"),
        (")", "expected a part of a case id, 'not' or '(' at column 1"),
        ("or a", "expected a part of a case id, 'not' or '(' at column 1"),
        ("(" * 600, "the expression is longer than 500 words"),
        ("not " * 600, "the expression is longer than 500 words"),
    ],
)
def test_keyword_mistakes(expression: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        matrix.keyword_filter(expression)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["0/5", "6/5", "1/0", "2", "2/5/1", "a/b", "-1/5", "1.0/5", "", "²/5"])
def test_shards_that_do_not_exist(text: str) -> None:
    with pytest.raises(UsageError, match="for example 2/5"):
        matrix.parse_shard(text)
    assert matrix.parse_shard(" 2/5 ") == (2, 5)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 40), st.randoms(use_true_random=False))
def test_shards_hold_each_case_once(count: int, parts: int, random: object) -> None:
    cases = list(matrix.plan(models(count)))
    durations = {case.id: random.uniform(1, 100) for case in cases}
    shuffled = random.sample(cases, len(cases))
    shards = [matrix.shard(cases, i, parts, durations) for i in range(1, parts + 1)]
    assert sorted(case.id for part in shards for case in part) == ids(tuple(cases))
    again = [set(ids(matrix.shard(shuffled, i, parts, durations))) for i in range(1, parts + 1)]
    assert again == [set(ids(part)) for part in shards]
    if parts <= count:
        homes = [{case.model for case in part} for part in shards]
        assert sum(len(home) for home in homes) == count
    loads = [sum(durations[case.id] for case in part) for part in shards]
    # The longest-processing-time rule: no part exceeds the mean by more than one whole model.
    assert max(loads) <= sum(loads) / parts + 200


def test_shards_balance_recorded_durations() -> None:
    cases = matrix.plan(models(4))
    durations = {case.id: {"m000": 300.0, "m001": 100.0, "m002": 100.0, "m003": 100.0}[case.model] for case in cases}
    parts = [{case.model for case in matrix.shard(cases, i, 2, durations)} for i in (1, 2)]
    assert parts == [{"m000"}, {"m001", "m002", "m003"}]


@pytest.mark.parametrize(
    ("count", "shards"), [(0, 5), (1, 5), (255, 256), (256, 256), (257, 256), (600, 256), (600, 8)]
)
def test_github_matrix(count: int, shards: int) -> None:
    plan = matrix.plan(models(max(count, 1)))[: 2 * count]
    result = matrix.github(plan, shards)
    include = result["matrix"]["include"]
    assert (result["empty"], result["cases"]) == (count == 0, 2 * count)
    assert len(include) == min(shards, 2 * count)
    parts = matrix.split(plan, len(include)) if include else []
    assert all(parts)
    assert parts[-1:] == [matrix.shard(plan, *matrix.parse_shard(job["shard"])) for job in include[-1:]]
    assert sorted(case.id for part in parts for case in part) == ids(plan)
    assert len({job["name"] for job in include}) == len(include)
    assert len(json.dumps(result)) < 20_000
    assert result == matrix.github(plan, shards)


@pytest.mark.parametrize("shards", [0, -1, 257])
def test_github_limits(shards: int) -> None:
    with pytest.raises(UsageError, match=f"--shards {shards}: GitHub makes 1 to 256 jobs from a matrix"):
        matrix.github((), shards)


def test_slugs_are_safe_and_apart() -> None:
    names = ["org/a-b", "org-a/b", "a:free", "A:free", "a_free", "x" * 300, "x" * 301, "..", "", "con", "é/ü", "\ud800"]
    slugs = [matrix.slug(name) for name in names]
    assert len({slug.casefold() for slug in slugs}) == len(names)
    assert all(len(slug) <= 97 and slug.isascii() and not set(slug) & set('/\\:*?"<>| ') for slug in slugs)
    assert not any(slug.startswith((".", "-")) for slug in slugs)
    assert matrix.slug("smollm2-135m/causal-lm/spyre-eager-float16") == (
        "smollm2-135m-causal-lm-spyre-eager-float16-566cdaaaee8a87af"
    )


@settings(max_examples=200, deadline=None)
@given(st.text(), st.text())
def test_slugs_differ_when_ids_do(one: str, other: str) -> None:
    assert (matrix.slug(one).casefold() == matrix.slug(other).casefold()) is (one == other)


def test_fit_names_what_is_needed_and_there() -> None:
    cases = {case.model: case for case in matrix.plan(manifest.load(ROOT / "models.yaml"))}
    assert matrix.fits(cases["granite-3.3-8b"], 16_000_000_000) == (
        "needs about 33.4 GB of memory (8.17 billion parameters in float32), 16.0 GB are available"
    )
    assert matrix.fits(cases["smollm2-135m"], 8_000_000_000) is None
    assert matrix.fits(cases["granite-3.3-8b"], 64_000_000_000) is None


def test_unknown_size_is_said_and_metadata_settles_it() -> None:
    case = matrix.plan(manifest_of({"m": hub()}))[0]
    assert matrix.estimate(case) == matrix.Estimate(None, None)
    assert matrix.fits(case, 1) is None
    assert matrix.fits(case, 10**9, parameters=10**9) is not None


def test_estimates_grow_with_size_and_shape() -> None:
    axes = {"shape": ["b1s64", "b1s128", "b4s128"], "mode": ["eager"]}
    cases = matrix.plan(manifest_of({"m": hub(parameters=10**8)}, axes=axes))
    found = [matrix.estimate(case) for case in sorted(cases, key=lambda case: case.shape.batch * case.shape.sequence)]
    assert all(a.memory_bytes < b.memory_bytes and a.seconds < b.seconds for a, b in pairwise(found))


def test_neither_stage_loads_torch() -> None:
    code = "import sys, harness.manifest, harness.matrix; print([m for m in ('torch', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"
