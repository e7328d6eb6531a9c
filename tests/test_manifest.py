"""Tests of reading models.yaml: what is refused, where, and with which words."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import manifest
from harness.errors import ManifestError
from harness.records import Manifest

ROOT = Path(__file__).parent.parent
SHA = "0123456789abcdef0123456789abcdef01234567"
HEAD = f"""\
version: 1
defaults:
  inputs:
    causal-lm: {{texts: [Once upon a time there was a harness.]}}
    masked-lm: {{texts: ["A [MASK] of text."]}}
models:
  good:
    task: causal-lm
    source: {{hub: org/good, revision: "{SHA}"}}
    licence: MIT
    parameters: 1000
"""


def problems(tmp_path: Path, text: str | bytes) -> list[str]:
    path = tmp_path / "models.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ManifestError) as caught:
        manifest.load(path)
    assert caught.value.exit_status == 2
    return caught.value.problems


def loaded(tmp_path: Path, text: str) -> Manifest:
    path = tmp_path / "models.yaml"
    path.write_text(text)
    return manifest.load(path)


def remarks(tmp_path: Path, text: str, today: date = date(2026, 11, 30)) -> list[str]:
    return [str(remark) for remark in manifest.lint(loaded(tmp_path, text), today)]


def test_the_project_s_own_manifest_is_right() -> None:
    own = manifest.load(ROOT / "models.yaml")
    errors = [remark for remark in manifest.lint(own, date.today()) if remark.severity == "error"]
    assert errors == []
    assert len(own.models) == 14


def test_the_published_schema_is_the_records() -> None:
    assert json.loads((ROOT / "models.schema.json").read_text()) == manifest.json_schema()


def test_unknown_key_near_match(tmp_path: Path) -> None:
    assert problems(tmp_path, HEAD + "    licnce: MIT\n") == [
        "models.yaml:12: unknown key 'licnce' in models.good; did you mean 'licence'? Known: task, source, "
        "licence, parameters, family, inputs, axes, tolerance, exclude, expect, timeouts"
    ]


def test_unknown_key_that_belongs_elsewhere(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, HEAD + "    dtpye: float16\n")
    assert problem.startswith(
        "models.yaml:12: unknown key 'dtpye' in models.good; did you mean 'dtype', which belongs to axes?"
    )


def test_duplicate_model(tmp_path: Path) -> None:
    text = HEAD + f"  good:\n    task: causal-lm\n    source: {{hub: a/b, revision: '{SHA}'}}\n"
    assert problems(tmp_path, text) == [
        "models.yaml:12: 'good' is given twice in models (first in line 7); keep one or rename it"
    ]


def test_names_that_differ_in_case_only(tmp_path: Path) -> None:
    text = HEAD + f"  Good:\n    task: causal-lm\n    source: {{hub: a/b, revision: '{SHA}'}}\n"
    assert problems(tmp_path, text) == [
        "models.yaml:12: 'Good' differs from 'good' only in case (first in line 7); keep one or rename it",
        "models.yaml:12: 'Good' is no valid name in models: use lower-case letters, digits, '.', '_' and '-', "
        "a letter or digit first",
    ]


COMMIT = "The commit: 40 hexadecimal digits, quoted. A branch may move, so none is accepted."


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("1234567", "is 1234567 without quotes, which YAML reads as a number; quote it"),
        ("0123456", "is 0123456 without quotes, which YAML reads as a number; quote it"),
        ("9509425349e4", "is 9509425349e4 without quotes, which YAML reads as a number; quote it"),
        ("1" * 40, f"is {'1' * 40} without quotes, which YAML reads as a number; quote it"),
        ("true", "is true without quotes, which YAML reads as true or false; quote it"),
        ("no", "is 'no', which does not have the form [0-9a-f]{40}"),
        ("main", "is 'main', which does not have the form [0-9a-f]{40}"),
        ("'v1.0'", "is 'v1.0', which does not have the form [0-9a-f]{40}"),
        (SHA[:12], f"is '{SHA[:12]}', which does not have the form [0-9a-f]{{40}}"),
        (SHA.upper(), f"is '{SHA.upper()}', which does not have the form [0-9a-f]{{40}}"),
        (f'"{SHA}\\n"', f"is '{SHA}\\n', which does not have the form [0-9a-f]{{40}}"),
        ("", "is empty"),
    ],
)
def test_revisions_that_are_no_commit(tmp_path: Path, written: str, said: str) -> None:
    text = HEAD.replace(f'"{SHA}"', written)
    assert problems(tmp_path, text) == [f"models.yaml:9: models.good.source.revision {said}. {COMMIT}"]


def test_missing_revision(tmp_path: Path) -> None:
    text = HEAD.replace(f', revision: "{SHA}"', "")
    assert problems(tmp_path, text) == [f"models.yaml:9: models.good.source lacks 'revision'. {COMMIT}"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "models.yaml:1: the file is empty; begin with 'version: 1'"),
        (b"# only a comment\n", "models.yaml:1: the file is empty; begin with 'version: 1'"),
        (b"---\n...\n", "models.yaml:1: the file is empty; begin with 'version: 1'"),
        (b"just words", "models.yaml:1: the file holds no mapping; begin with 'version: 1'"),
        (b"- a\n- b\n", "models.yaml:1: the file holds no mapping; begin with 'version: 1'"),
        (b"a: 1\n---\nb: 2\n", "models.yaml:2: a second document begins here; keep one"),
        (b"a: {b: [c\n", "models.yaml:2: not YAML: expected ',' or ']', but got '<stream end>'"),
        (b"a: 1\n\tb: 2\n", "models.yaml:2: not YAML: found character '\\t' that cannot start any token"),
        (b"a: b: c\n", "models.yaml:1: not YAML: mapping values are not allowed here"),
        (b"version: 1\nx: \xff\xfe\n", "models.yaml:2: not UTF-8: byte 0xff cannot be decoded; save the file as UTF-8"),
        (b"version: 1\nx: *y\n", "models.yaml:2: alias *y has no anchor before it"),
        (b"version: 1\nx: &y [*y]\n", "models.yaml:2: alias *y holds itself"),
        (b"[" * 5000, "models.yaml:1: nested more than 24 deep"),
        (b"a: \n" + b"".join(b" " * i + b"- \n" for i in range(1, 60)), "models.yaml:25: nested more than 24 deep"),
        (
            b"\x00\x01\x02\x7fELF",
            "models.yaml:1: not YAML: unacceptable character #x0000: special characters are not allowed",
        ),
    ],
)
def test_files_that_are_no_manifest(tmp_path: Path, content: bytes, said: str) -> None:
    (problem,) = problems(tmp_path, content)
    assert problem.startswith(said)
    assert "\n" not in problem


def test_anchors_that_multiply(tmp_path: Path) -> None:
    levels = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]\n" for i in range(1, 10))
    (problem,) = problems(tmp_path, "version: 1\nl0: &l0 [x, x]\n" + levels)
    assert problem.endswith("aliases expand to more than can be meant; write values out")


def test_anchors_are_fine(tmp_path: Path) -> None:
    text = HEAD.replace("source: {", "source: &s {") + "  again:\n    task: causal-lm\n    source: *s\n"
    assert loaded(tmp_path, text).models["again"].source == loaded(tmp_path, text).models["good"].source


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    for path, said in [
        (tmp_path, "is a directory; name a YAML file in it"),
        (tmp_path / "none.yaml", "does not exist; name a file that does, or create it"),
        (tmp_path / "a\0b", "cannot be read: embedded null byte"),
        (tmp_path / ("x" * 300), "cannot be read: File name too long"),
    ]:
        with pytest.raises(ManifestError, match=said):
            manifest.load(path)


def test_a_file_beyond_the_limit(tmp_path: Path) -> None:
    assert problems(tmp_path, b"#" * (9 << 20)) == ["models.yaml:1: the file is larger than 8 MiB; split it"]


def test_all_problems_at_once_in_order_of_lines(tmp_path: Path) -> None:
    text = (
        HEAD
        + """\
  b:
    task: causal_lm
    source: {wheel: foo, path: ../x, sha256: 3}
  c:
    source: {}
    axes: {mode: [], dtype: float16, shape: [b1x], target: [Spyre-1]}
  d: 3
  e:
    task: causal-lm
    source: {folder: x}
    parameters: "12"
    inputs: {texts: [" "], decode_steps: -1}
    tolerance: {cosine: .nan, kl: .inf}
    timeouts: {run: 0}
    expect: [{outcome: completed, reason: it cannot be}, {outcome: comple, reason: short}]
"""
    )
    assert [line.removeprefix("models.yaml:") for line in problems(tmp_path, text)] == [
        "13: models.b.task is 'causal_lm', not one of causal-lm, embedding, masked-lm, "
        "sequence-classification; did you mean 'causal-lm'?",
        "14: models.b.source.path: path '../x' leads out of the wheel; give a relative path with '/'",
        "14: models.b.source.sha256 is 3 without quotes, which YAML reads as a number; quote it. Hash of the "
        "wheel file.",
        r"14: models.b.source.wheel is 'foo', which does not have the form [A-Za-z0-9][\w.-]*==[\w.!+]+. "
        "'name==version' as pip understands it.",
        "15: models.c lacks 'task'. What the model is asked to do.",
        "16: models.c.source: a source needs exactly one of the keys 'hub', 'wheel' and 'folder'",
        "17: models.c.axes.dtype is 'float16': it should be a list. Format of the candidate's and the "
        "control's weights. The reference is always float32.",
        "17: models.c.axes.mode is empty; give at least one entry",
        "17: models.c.axes.shape.0: shape 'b1x' is neither 'natural' nor 'b<batch>s<sequence>', e.g. 'b1s64'",
        "17: models.c.axes.target.0 is 'Spyre-1', which does not have the form [a-z][a-z0-9_]*",
        "18: models.d is 3: it should be a mapping",
        "22: models.e.parameters is '12': it should be an integer. Number of parameters, or the nominal size, "
        "for planning before anything is fetched.",
        "23: models.e.inputs.decode_steps is -1: it should be greater than or equal to 0. Causal language "
        "models only: teacher-forced steps through the KV cache after the prefill.",
        "24: models.e.tolerance.cosine is nan: it should be a finite number. Absolute guard: smallest cosine "
        "similarity with the reference.",
        "24: models.e.tolerance.kl is inf: it should be a finite number. Logits: largest mean "
        "Kullback-Leibler divergence from the reference, in nats.",
        "25: models.e.timeouts.run is 0: it should be greater than 0. The forward passes.",
        "26: models.e.expect.0.outcome: outcome 'completed' cannot be expected: it says nothing about the "
        "device; expect 'outside_rule' or one of unsupported_op, compile_error, runtime_error, device_error, "
        "host_out_of_memory, device_out_of_memory, timeout, crash, killed",
        "26: models.e.expect.1.outcome is 'comple', not one of outside_rule, unsupported_op, compile_error, "
        "runtime_error, device_error, host_out_of_memory, device_out_of_memory, timeout, crash, killed; did "
        "you mean 'compile_error'?",
        "26: models.e.expect.1.reason is 'short': it should have at least 8 characters. What is known of the "
        "defect, for those who read the report.",
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("task: embedding", "models.good has nothing to ask: give 'inputs' with 'texts' or 'ids' there or under"),
        ("task: masked-lm\n    inputs: {texts: [No mask here.]}", "a masked-lm text has no [MASK]"),
        ("task: causal-lm\n    inputs: {texts: [a], ids: [[1]]}", "give 'texts' or 'ids', not both"),
        (
            "task: embedding\n    inputs: {texts: [a]}\n    axes: {check: [left-padding]}",
            "models.good: the check left-padding means nothing to embedding; remove it from its axes",
        ),
        (
            "task: causal-lm\n    axes: {shape: [b1s8], check: [outputs, batch-invariance]}",
            "models.good: the check batch-invariance sets the shape itself; add 'natural' to the row's shapes",
        ),
        (
            "task: embedding\n    inputs: {texts: [a], sampling: {draws: 100}}",
            "models.good.inputs.sampling means nothing to embedding, only to causal-lm; remove it",
        ),
        ("task: causal-lm\n    inputs: {ids: [[]]}", "an empty text or sequence asks nothing"),
        ("task: !!python/object:os.system causal-lm", "the tag tag:yaml.org,2002:python/object:os.system is not"),
        ('task: causal-lm\n    licence: "\\ud800"', "half a surrogate pair is no character"),
        ("task: causal-lm\n    ? [a, b]\n    : 1", "a key in models.good is no word; keys are words"),
    ],
)
def test_what_the_schema_alone_does_not_see(tmp_path: Path, row: str, said: str) -> None:
    found = problems(tmp_path, HEAD.replace("task: causal-lm", row, 1).replace("    licence: MIT\n", ""))
    assert said in found[0]


def test_strict_about_kinds(tmp_path: Path) -> None:
    assert problems(tmp_path, HEAD + "profiles:\n  p: {check_fit: 1}\n")[0].startswith(
        "models.yaml:13: profiles.p.check_fit is 1: it should be a boolean."
    )
    assert problems(tmp_path, "version: 1\nmodels: {}\n") == ["models.yaml:2: models is empty; give at least one entry"]


def test_yaml_words_stay_words(tmp_path: Path) -> None:
    row = loaded(tmp_path, HEAD.replace("licence: MIT", "licence: no\n    family: 2026-01-01")).models["good"]
    assert (row.licence, row.family) == ("no", "2026-01-01")


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab:-[]{}&*!#|>'\"%@`\n\t ,?0e.~", max_size=40))
def test_any_text_gives_problems_and_no_other_exception(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "models.yaml"
    path.write_text(text)
    with pytest.raises(ManifestError) as caught:
        manifest.load(path)
    assert all(problem.startswith("models.yaml:") for problem in caught.value.problems)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def test_a_key_that_does_not_print_is_quoted(tmp_path: Path) -> None:
    found = problems(tmp_path, json.dumps({"version": 1, "profiles": {"\n": {"x": None}}, "models": {}}))
    assert any("profiles.'\\n'" in line for line in found)
    assert all("\n" not in line for line in found)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["version", "defaults", "axes", "profiles", "models", "task", "source", "expect", "tolerance"]),
    TREES,
)
def test_wrong_types_everywhere(tmp_path_factory: pytest.TempPathFactory, key: str, value: object) -> None:
    row = {"task": "causal-lm", "source": {"folder": "x"}, "inputs": {"texts": ["a"]}}
    whole: dict[str, object] = {"version": 1, "models": {"m": row}}
    (row if key in ("task", "source", "expect", "tolerance") else whole)[key] = value
    path = tmp_path_factory.getbasetemp() / "types.yaml"
    path.write_text(json.dumps(whole))
    found: list[str] = []
    try:
        manifest.load(path)
    except ManifestError as error:
        found = error.problems or ["no problem is named"]
    assert all(line.startswith("types.yaml:1: ") and "\n" not in line for line in found)


def test_lint_expectations(tmp_path: Path) -> None:
    text = (
        HEAD
        + """\
    exclude:
      - {mode: compiled, reason: compiled hangs here}
      - {dtype: bfloat16, reason: no such case}
    expect:
      - {outcome: crash, mode: compiled, reason: excluded already, issue: https://example.org/1}
      - {outcome: crash, reason: crashes since then, expires: 2026-11-30}
      - {outcome: timeout, mode: eager, reason: never looked at}
"""
    )
    assert remarks(tmp_path, text) == [
        "models.yaml:14: this exclusion matches no case of good; remove or mend it",
        "models.yaml:16: the expectation crash matches no case of good that runs; remove or mend it",
        "models.yaml:18: the expectation timeout of good is never used, since earlier entries match the same "
        "cases and the first match holds; put the narrower entry first",
        "models.yaml:17: the expectation crash of good expired on 2026-11-30; see whether the defect is still "
        "there, then remove the entry or set a new date",
        "models.yaml:18: the expectation timeout of good has neither 'issue' nor 'expires', so nobody will "
        "look at it again (warning)",
    ]
    assert not any("expired" in line for line in remarks(tmp_path, text, date(2026, 11, 29)))


def test_lint_tolerances_profiles_and_metadata(tmp_path: Path) -> None:
    text = (
        HEAD.replace("    licence: MIT\n    parameters: 1000\n", "    tolerance: {cosine: 0.9, kl: 1}\n")
        + f"""\
  twin:
    task: causal-lm
    source: {{hub: org/good, revision: "{SHA}"}}
    licence: MIT
    parameters: 1000
profiles:
  smoke: {{sources: [wheel, folder]}}
"""
    )
    assert remarks(tmp_path, text) == [
        "models.yaml:11: twin asks the same of the same checkpoint as good; remove one",
        "models.yaml:17: profile smoke plans nothing, no row has a source of kind wheel, folder",
        "models.yaml:10: cosine, kl depart from the rule without a 'reason'; add one",
        "models.yaml:7: good has no 'parameters', so whether it fits is known only after its metadata has been "
        "fetched (warning)",
        "models.yaml:7: good names no 'licence' (warning)",
    ]


def test_schema_describes_fields() -> None:
    schema = manifest.json_schema()
    revision = schema["$defs"]["HubSource"]["properties"]["revision"]
    assert (revision["pattern"], revision["description"]) == ("^[0-9a-f]{40}$", COMMIT)
    assert schema["additionalProperties"] is False
    undescribed = [
        f"{name}.{field}"
        for name, record in schema["$defs"].items()
        for field, node in record.get("properties", {}).items()
        if "description" not in node
    ]
    assert undescribed == []


def test_policies_are_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "release.yaml"
    path.write_text("version: 1\nrequire:\n  - cases: '*'\n")
    assert [entry.cases for entry in manifest.load_policy(path).require] == ["*"]
    path.write_text(
        "version: 1\nrequire: []\nwaivers:\n  - {cases: a, owner: me, reason: it is late, expires: 2026-02-30}\n"
        "  - {cases: b, onwer: me, reason: it is late, expires: 2026-02-03}\nmode: gate\n"
    )
    with pytest.raises(ManifestError) as caught:
        manifest.load_policy(path)
    assert caught.value.problems == [
        "release.yaml:2: require is empty; give at least one entry",
        "release.yaml:4: waivers.0.expires is '2026-02-30': it should be a date in the format YYYY-MM-DD, day value "
        "is outside expected range. From this day on it waives nothing.",
        "release.yaml:5: unknown key 'onwer' in waivers.1; did you mean 'owner'? Known: cases, owner, reason, issue, "
        "expires",
        "release.yaml:5: waivers.1 lacks 'owner'. Who answers for it: a person or a team that can be asked.",
        "release.yaml:6: mode is 'gate', not one of gating, validate; did you mean 'gating'?",
    ]


def test_only_kinds_without_a_result_may_be_absent(tmp_path: Path) -> None:
    kinds = "unavailable, gated, cancelled, lost_worker"
    text = HEAD + "profiles:\n  nightly:\n    allow_notrun: [unavailable, crash, gatd]\n"
    assert problems(tmp_path, text) == [
        f"models.yaml:14: profiles.nightly.allow_notrun.1 is 'crash', not one of {kinds}",
        f"models.yaml:14: profiles.nightly.allow_notrun.2 is 'gatd', not one of {kinds}; did you mean 'gated'?",
    ]
    path = tmp_path / "release.yaml"
    path.write_text("version: 1\nrequire:\n  - cases: '*'\nallow_notrun: [timeout]\n")
    with pytest.raises(ManifestError) as caught:
        manifest.load_policy(path)
    assert caught.value.problems == [f"release.yaml:4: allow_notrun.0 is 'timeout', not one of {kinds}"]


def test_the_documented_policy_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "history.md").read_text()
    block = page.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "release.yaml").write_text(block)
    assert [entry.owner for entry in manifest.load_policy(tmp_path / "release.yaml").waivers] == ["compiler team"]


def test_the_reference_page_names_every_key() -> None:
    page = (ROOT / "docs" / "models-yaml.md").read_text()
    records = [record for name, record in manifest.json_schema()["$defs"].items() if name != "Axes"]
    keys = {key for record in records for key in record.get("properties", {})}
    assert [key for key in sorted(keys) if f"`{key}" not in page and f"{key}:" not in page] == []


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("axes: {shape: [b1s8, natural, b1s8]}", "models.good.axes.shape: b1s8 is there twice; keep one"),
        ("axes: {mode: [eager, eager]}", "models.good.axes.mode: eager is there twice; keep one"),
        ("axes: {shape: [b01s8]}", "models.good.axes.shape.0: shape 'b01s8' is written 'b1s8'"),
        ("inputs: {ids: [[-1]]}", "models.good.inputs.ids.0.0 is -1: it should be greater than or equal to 0"),
        (
            "inputs: {texts: [x], pooling: mean}",
            "models.good.inputs.pooling means nothing to causal-lm, only to embedding; remove it",
        ),
    ],
)
def test_what_a_row_cannot_mean(tmp_path: Path, key: str, said: str) -> None:
    assert problems(tmp_path, f"{HEAD}    {key}\n") == [f"models.yaml:{HEAD.count(chr(10)) + 1}: {said}"]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{hub: a/b, folder: c}", "a source needs exactly one of the keys 'hub', 'wheel' and 'folder'"),
        (
            f'{{hub: ../.., revision: "{SHA}"}}',
            "hub: the Hub has no repository '../..': no name begins or ends with '.' or '-', or has '..'",
        ),
    ],
)
def test_sources_that_cannot_be(tmp_path: Path, written: str, said: str) -> None:
    text = "\n".join(
        f"{line.partition('source:')[0]}source: {written}" if "source:" in line else line for line in HEAD.split("\n")
    )
    (problem,) = problems(tmp_path, text)
    assert problem.startswith("models.yaml:9: models.good.source")
    assert problem.endswith(said)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2", "models.yaml:1: version 2 of this file is not known, only 1; upgrade the harness"),
        ("'1'", "models.yaml:1: version is '1' in quotes; write it without"),
    ],
)
def test_versions(tmp_path: Path, version: str, said: str) -> None:
    assert problems(tmp_path, HEAD.replace("version: 1", f"version: {version}")) == [said]
