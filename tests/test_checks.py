"""The four checks on a tiny trained model on the device: an honest run passes, the fault that each is for fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness import checkpoints, targets
from harness.records import Case, Check, Dtype, Finding, FolderSource, Inputs, Outcome, OutcomeKind, Status, Task
from harness.subject import compare_answers, load, question_of, run
from harness.verdict import judge
from tests.conformance_site import LLAMA, TEXT, Finished, Site
from tests.test_verdict import case, observations

Call = Callable[..., Any]
pytestmark = [
    pytest.mark.filterwarnings("ignore::spyre_emulator.dtypes.DowncastWarning"),
    pytest.mark.filterwarnings("ignore::spyre_emulator.fallbacks.FallbackWarning"),
]


def asking(check: Check) -> Case:
    inputs = Inputs(texts=(TEXT,), decode_steps=3)
    return case(source=FolderSource(folder=str(LLAMA)), task=Task.CAUSAL_LM, inputs=inputs, check=check)


@cache
def checkpoint() -> Any:
    with TemporaryDirectory() as stamps:  # a folder is used where it lies
        return checkpoints.resolve(FolderSource(folder=str(LLAMA)), cache=Path(stamps), base=Path())


@cache
def model(side: str) -> torch.nn.Module:
    dtype = Dtype.FLOAT32 if side == "reference" else Dtype.FLOAT16
    found = load(checkpoint(), question_of(asking(Check.OUTPUTS), checkpoint()).workload, dtype).model
    return found.to(targets.get("spyre").device()) if side == "candidate" else found


@cache
def truth(check: Check) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Outputs of the reference and the control, and the reference's tokens."""
    question = question_of(asking(check), checkpoint())
    reference = run(question, model("reference"), model("reference"), {})
    forced = {name: reference.pop(name) for name in list(reference) if name.startswith("forced_tokens")}
    return reference, run(question, model("control"), model("control"), forced), forced


def judged(check: Check, fault: Callable[[Call], Call] = lambda call: call) -> tuple[Status, dict[str, set[str]], str]:
    """Status, outputs outside the rule by metric, and sentence, for the device behind a fault."""
    asked = asking(check)
    question = question_of(asked, checkpoint())
    reference, control, forced = truth(check)
    device = model("candidate")
    outputs = run(question, device, fault(device), forced)
    comparison = compare_answers(asked, question, reference, outputs, control, "dlfloat16")
    verdict = judge(asked, Outcome(kind=OutcomeKind.COMPLETED), comparison, observations())
    outside: dict[str, set[str]] = {}
    for finding in verdict.findings:
        if not finding.within:
            outside.setdefault(finding.output, set()).add(finding.metric)
    return verdict.status, outside, verdict.sentence


@pytest.mark.parametrize("check", Check)
def test_an_honest_device_passes(check: Check) -> None:
    status, outside, sentence = judged(check)
    assert (status, outside) == (Status.PASS, {}), sentence


def _with_logits(call: Call, change: Callable[[torch.Tensor, dict[str, Any]], torch.Tensor]) -> Call:
    def changed(**given: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=change(call(**given).logits, given))

    return changed


def test_a_sampler_s_distribution_that_is_too_sharp_is_found_by_the_draws() -> None:
    status, outside, sentence = judged(Check.SAMPLING, lambda call: _with_logits(call, lambda logits, _: logits * 1.1))
    assert status is Status.FAIL
    assert {name for name, metrics in outside.items() if "sampling_ratio" in metrics} == set(outside)
    assert "sampling_ratio" in sentence


def test_draws_alone_can_fail_a_device() -> None:
    """Every other limit widened by the row: the tokens drawn still betray the distribution."""
    asked = asking(Check.SAMPLING)
    question = question_of(asked, checkpoint())
    reference, control, _ = truth(Check.SAMPLING)
    shifted = {name: logits * 1.1 for name, logits in reference.items()}
    comparison = compare_answers(asked, question, reference, shifted, control, "dlfloat16")
    drawn = [output.sampling for output in comparison.outputs]
    assert [(numbers.positions, numbers.draws) for numbers in drawn if numbers] == [(25, 1024), (3, 1024)]
    (prefill, _) = [_finding(asked, comparison, name) for name in reference]
    assert not prefill.within
    assert prefill.where.startswith("position (0, ")


def _finding(asked: Case, comparison: Any, name: str) -> Finding:
    verdict = judge(asked, Outcome(kind=OutcomeKind.COMPLETED), comparison, observations())
    (found,) = [one for one in verdict.findings if one.metric == "sampling_ratio" and one.output == name]
    return found


def test_rows_mixed_up_in_a_batch_are_found_there_and_the_rows_alone_are_right() -> None:
    def swapped(logits: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
        return logits.flip(0)

    status, outside, sentence = judged(Check.BATCH_INVARIANCE, lambda call: _with_logits(call, swapped))
    assert status is Status.FAIL
    assert set(outside) == {
        f"logits.{part}{end}"
        for part in ("prefill", "decode")
        for end in ("", " of row 0, batched against alone", " of row 2, batched against alone")
    }
    assert "logits.prefill" in sentence


def test_answers_that_each_lie_within_the_limits_may_still_be_too_far_apart() -> None:
    asked = asking(Check.BATCH_INVARIANCE)
    question = question_of(asked, checkpoint())
    reference, _, _ = truth(Check.BATCH_INVARIANCE)
    control = {name: logits * (1 + 1e-3) for name, logits in reference.items()}

    def device(batched: float, alone: float) -> dict[str, torch.Tensor]:
        return {name: logits * (1 + (alone if "alone" in name else batched)) for name, logits in reference.items()}

    def verdict(outputs: dict[str, torch.Tensor]) -> tuple[Status, set[str]]:
        comparison = compare_answers(asked, question, reference, outputs, control, "dlfloat16")
        found = judge(asked, Outcome(kind=OutcomeKind.COMPLETED), comparison, observations())
        return found.status, {one.output for one in found.findings if not one.within}

    assert verdict(device(2.5e-3, 2.5e-3)) == (Status.PASS, set())
    status, outside = verdict(device(2.5e-3, -2.5e-3))
    assert status is Status.FAIL
    assert outside == {f"logits.prefill of row {row}, batched against alone" for row in range(3)}


def test_a_kernel_that_is_wrong_beyond_a_stick_is_found_at_65_tokens() -> None:
    def cut(logits: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
        if logits.shape[1] % 64 == 1 and logits.shape[1] > 1:
            logits = logits.clone()
            logits[:, 64:] = logits[:, 63:64]
        return logits

    status, outside, sentence = judged(Check.BLOCK_BOUNDARIES, lambda call: _with_logits(call, cut))
    assert (status, set(outside)) == (Status.FAIL, {"logits.prefill at 65 tokens"})
    assert "logits.prefill at 65 tokens" in sentence
    assert "step 64" in sentence


def test_a_single_token_has_a_case_of_its_own() -> None:
    def one(logits: torch.Tensor, given: dict[str, Any]) -> torch.Tensor:
        first = logits.shape[1] == 1 and int(given["position_ids"].max()) == 0
        return logits * 1.5 if first else logits

    status, outside, _ = judged(Check.BLOCK_BOUNDARIES, lambda call: _with_logits(call, one))
    assert (status, set(outside)) == (Status.FAIL, {"logits.prefill at 1 token"})


def _with_arguments(call: Call, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Call:
    def changed(**given: Any) -> Any:
        return call(**(change(given) if "attention_mask" in given else given))

    return changed


def _unmasked(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "attention_mask"}


def _counting_padding(given: dict[str, Any]) -> dict[str, Any]:
    """Decode steps go on from the longest row. (In the prefill alone it would not matter to rotary positions.)"""
    positions = given["position_ids"]
    if positions.shape[1] > 1:
        return given
    return given | {"position_ids": positions.cpu().max().expand(len(positions), 1).to(positions.device)}


@pytest.mark.parametrize(
    ("fault", "parts"),
    [(_unmasked, ("prefill", "decode")), (_counting_padding, ("decode",))],
    ids=["mask", "positions"],
)
def test_padding_that_is_attended_to_or_counted_is_found(
    fault: Callable[[dict[str, Any]], dict[str, Any]], parts: tuple[str, ...]
) -> None:
    status, outside, _ = judged(Check.LEFT_PADDING, lambda call: _with_arguments(call, fault))
    assert status is Status.FAIL
    assert set(outside) == {f"logits.{part}" for part in parts} | {
        f"logits.{part} of row {row}, batched against alone" for part in parts for row in (1, 2)
    }, "the first row has no padding, and rows alone are right"


@pytest.mark.parametrize(("dtype", "status"), [(Dtype.FLOAT32, Status.FAIL), (Dtype.BFLOAT16, Status.PASS)])
def test_a_cache_in_a_shorter_format_is_wrong_in_float32_and_right_in_bfloat16(dtype: Dtype, status: Status) -> None:
    """Like with like: reference, control and candidate all decode through the cache (transformers#25420)."""
    asked = asking(Check.OUTPUTS).model_copy(update={"dtype": dtype})
    question = question_of(asked, checkpoint())
    reference, _, forced = truth(Check.OUTPUTS)
    plain = load(checkpoint(), question.workload, dtype).model

    def rounding(**given: Any) -> Any:
        answer = plain(**given)
        for layer in given["past_key_values"].layers:
            for part in (layer.keys, layer.values):
                part.copy_(part.bfloat16())
        return answer

    control = run(question, plain, plain, forced)
    outputs = run(question, plain, rounding, forced)
    assert torch.equal(outputs["logits.prefill"], control["logits.prefill"]), "the cache is not read yet"
    comparison = compare_answers(asked, question, reference, outputs, control, dtype.value)
    verdict = judge(asked, Outcome(kind=OutcomeKind.COMPLETED), comparison, observations())
    assert verdict.status is status, verdict.sentence
    assert {one.output for one in verdict.findings if not one.within} <= {"logits.decode"}


@pytest.fixture(scope="module")
def run_of_checks(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    axes = {"axes": {"check": ["sampling", "left-padding"]}}
    return Site(tmp_path_factory.mktemp("checks")).rows({"llama": axes}).run("run", "--workers", "2", timeout=500)


def test_each_check_is_a_case_of_a_run(run_of_checks: Finished) -> None:
    assert run_of_checks.told == {
        f"llama/causal-lm/spyre-eager-float16-{end}": "PASS completed compare" for end in ("sampling", "left-padding")
    }, run_of_checks.output
    compared = {
        name.removeprefix("llama/causal-lm/spyre-eager-float16-"): [
            output.name for output in result.comparison.outputs if not output.name.startswith("module:")
        ]
        for name, result in run_of_checks.results.items()
        if result.comparison
    }
    assert compared["sampling"] == ["logits.decode", "logits.prefill"]
    assert len(compared["left-padding"]) == 2 * (1 + 3 + 3)
