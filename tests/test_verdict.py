"""The rule: what is PASS, what is FAIL, what proves nothing, and what the sentence says."""

from __future__ import annotations

import math
from datetime import date

import pytest
import torch

from harness.compare import compare_outputs
from harness.records import (
    Case,
    Check,
    DeviceUse,
    Dtype,
    Expectation,
    ExpectationMode,
    Inputs,
    Mode,
    Observation,
    Outcome,
    OutcomeKind,
    Role,
    Sampling,
    Stage,
    Status,
    Task,
    Tolerance,
    WheelSource,
)
from harness.verdict import DEFAULTS, OUTCOME_STATUS, judge
from harness.verdict.exits import exit_status

NAN, INF = float("nan"), float("inf")
VALIDATE = ExpectationMode.VALIDATE
COMPLETED = Outcome(kind=OutcomeKind.COMPLETED)


def case(**changes):
    fields = {
        "id": "tiny/causal-lm/spyre-eager-float16",
        "model": "tiny",
        "task": Task.CAUSAL_LM,
        "target": "spyre",
        "mode": Mode.EAGER,
        "dtype": Dtype.FLOAT16,
        "source": WheelSource(wheel="tiny==1.0", path="tiny", sha256="0" * 64),
        "inputs": Inputs(ids=((1, 2),)),
    }
    return Case(**(fields | changes))


def observe(role, **changes):
    fields = {
        "role": role,
        "target": "spyre" if role is Role.CANDIDATE else "cpu",
        "dtype": Dtype.FLOAT32 if role is Role.REFERENCE else Dtype.FLOAT16,
        "mode": Mode.EAGER,
        "threads": 1,
        "weights_digest": "ab" * 32,
        "device": DeviceUse(ops_on_device=7) if role is Role.CANDIDATE else None,
    }
    return Observation(**(fields | changes))


def observations(**candidate):
    return {role: observe(role, **(candidate if role is Role.CANDIDATE else {})) for role in Role}


def tensors(seed=0, shape=(1, 6, 64)):
    """Logits and two unit errors of the same size in other directions."""
    generator = torch.Generator().manual_seed(seed)
    reference = 5 * torch.randn(shape, generator=generator)
    errors = [torch.randn(shape, generator=generator) for _ in range(2)]
    return reference, *(error * reference.norm() / error.norm() for error in errors)


def verdict(reference, candidate, control=None, *, name="logits", observed=None, today=None, **changes):
    comparison = compare_outputs(
        {name: reference},
        {name: candidate},
        {name: reference if control is None else control},
        logits=[name] if name == "logits" else [],
    )
    return judge(case(**changes), COMPLETED, comparison, observed or observations(), today)


def finding(verdict, metric):
    (found,) = [one for one in verdict.findings if one.metric == metric]
    return found


def test_an_error_near_the_control_passes_with_its_evidence():
    reference, error, other = tensors()
    passed = verdict(reference, reference + 3e-3 * error, reference + 1e-3 * other)
    assert (passed.status, passed.flags) == (Status.PASS, ())
    assert (passed.tensors, passed.elements) == (1, 384)
    ratio = finding(passed, "typical_ratio")
    assert 2.5 < ratio.value < 3.5
    assert ratio.limit == pytest.approx(2.75 * math.exp(2 / math.sqrt(6)))
    assert passed.sentence == (
        f"relative L2 error of logits is typically {ratio.value:.3g}x the float16 control's "
        f"(limit {ratio.limit:.3g}), worst at {ratio.where}; 1 tensors, 384 elements compared; "
        "7 ops on the device, 0 on the CPU"
    )
    assert passed.tolerance == DEFAULTS[Task.CAUSAL_LM, Dtype.FLOAT16]


def test_an_error_out_of_proportion_fails_and_names_metric_and_step():
    reference, error, other = tensors()
    candidate = reference + 1e-2 * error
    candidate[0, 5] += 1e-2 * error[0, 5]
    failed = verdict(reference, candidate, reference + 1e-3 * other)
    assert failed.status is Status.FAIL
    ratio = finding(failed, "error_ratio")
    assert failed.sentence == (
        f"relative L2 error of logits is {ratio.value:.3g}x the float16 control's (limit {ratio.limit:.3g}), "
        "worst at step 5; also outside: typical_ratio"
    )


def test_one_wrong_step_among_many_fails():
    reference, error, other = tensors(shape=(1, 100, 64))
    candidate = reference + 1e-3 * error
    candidate[0, 42] += 0.2 * error[0, 42]
    failed = verdict(reference, candidate, reference + 2e-2 * other)
    assert failed.status is Status.FAIL
    assert finding(failed, "vector_l2").value == pytest.approx(0.2, rel=0.1)
    assert failed.sentence.startswith("relative L2 error of one vector of logits is")
    assert "(limit 0.1), worst at step 42" in failed.sentence


def test_one_bad_step_fails_that_neither_the_whole_nor_the_typical_step_shows():
    reference, error, other = tensors(shape=(1, 100, 64))
    candidate, control = reference + 2e-3 * error, reference + 1e-3 * other
    assert verdict(reference, candidate, control, task=Task.MASKED_LM).status is Status.PASS
    candidate[0, 42] += 0.04 * error[0, 42]
    failed = verdict(reference, candidate, control, task=Task.MASKED_LM)
    assert {one.metric for one in failed.findings if not one.within} == {"worst_ratio"}
    worst = finding(failed, "worst_ratio")
    assert failed.sentence == (
        f"relative L2 error of logits is at one vector {worst.value:.3g}x the float16 control's "
        f"(limit {worst.limit:.3g}), worst at vector (0, 42)"
    )


def test_one_lucky_step_of_the_control_is_no_scale():
    reference, error, other = tensors(shape=(1, 100, 64))
    control = reference + 1e-3 * other
    control[0, 42] = reference[0, 42]
    passed = verdict(reference, reference + 3e-3 * error, control)
    assert passed.status is Status.PASS
    assert finding(passed, "worst_ratio").value < 5


def test_a_small_error_everywhere_fails_beside_one_large_error_of_the_control():
    reference, error, other = tensors(shape=(1, 100, 64))
    control = reference + 1e-3 * other
    control[0, 0] += 0.04 * other[0, 0]
    failed = verdict(reference, reference + 5e-3 * error, control)
    assert failed.status is Status.FAIL
    assert failed.sentence.startswith("relative L2 error of logits is typically")


def test_few_steps_have_wider_limits_whatever_the_batch():
    limits = [
        finding(verdict(one, one.half()), "typical_ratio").limit
        for one in (torch.rand(1, 4, 8), torch.rand(5, 4, 8), torch.rand(1, 400, 8), torch.rand(4, 8))
    ]
    assert limits == pytest.approx([2.75 * math.exp(part) for part in (1, 1, 0.1, 0)])


def test_guards_hold_whatever_the_control_does():
    reference, error, other = tensors()
    failed = verdict(reference, reference + 0.2 * error, reference + 0.2 * other)
    assert failed.status is Status.FAIL
    assert "relative L2 error of logits is 0.2 (limit 0.05)" in failed.sentence


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind is not OutcomeKind.COMPLETED])
def test_every_outcome_has_its_status(kind):
    ended = judge(case(), Outcome(kind=kind, stage=Stage.RUN, message="it ended"), None, {})
    assert (ended.status, ended.sentence) == (OUTCOME_STATUS[kind], f"{kind} at run: it ended")
    assert ended.status not in (Status.PASS, Status.XFAIL, Status.XPASS)


def test_nothing_compared_is_an_error():
    outputs = {"a": torch.ones(0), "b": object()}
    empty = judge(case(), COMPLETED, compare_outputs(outputs, outputs, None), observations())
    assert empty.status is Status.ERROR
    assert empty.sentence.startswith("nothing_compared: no element of any output could be compared")
    assert judge(case(), COMPLETED, None, observations()).status is Status.ERROR
    assert judge(case(), COMPLETED, compare_outputs({}, {}, None), observations()).status is Status.ERROR


@pytest.mark.parametrize("device", [None, DeviceUse(ops_on_device=0, fallbacks=9)])
def test_a_device_that_did_nothing_is_an_error(device):
    reference, *_ = tensors()
    idle = verdict(reference, reference.half(), observed=observations(device=device))
    assert idle.status is Status.ERROR
    assert idle.sentence.startswith("not_exercised: ")


def test_fallbacks_are_flagged():
    reference, *_ = tensors()
    use = DeviceUse(ops_on_device=5, fallbacks=2)
    passed = verdict(reference, reference.half(), observed=observations(device=use))
    assert (passed.status, passed.flags) == (Status.PASS, ("fallback",))
    assert passed.sentence.endswith("5 ops on the device, 2 on the CPU")


def test_other_weights_are_an_error():
    reference, *_ = tensors()
    differ = verdict(reference, reference.half(), observed=observations(weights_digest="cd" * 32))
    assert differ.status is Status.ERROR
    assert differ.sentence == (
        "invalid_reference: the weights differ (candidate cdcdcdcdcdcd, control abababababab, "
        "reference abababababab); load all sides from one checkpoint"
    )


@pytest.mark.parametrize("swapped", [False, True])
def test_a_constant_side_fails(swapped):
    sides = [torch.rand(100, generator=torch.Generator().manual_seed(2)), torch.ones(100)]
    reference, candidate = sides[::-1] if swapped else sides
    failed = verdict(reference, candidate, name="y")
    assert failed.status is Status.FAIL
    assert ("likely an unwritten buffer" in failed.sentence) is not swapped


def test_nan_on_both_sides_is_never_a_silent_pass():
    reference = torch.tensor([1.0, 2.0, 3.0, NAN, 5.0])
    passed = verdict(reference, reference.half(), name="y")
    assert (passed.status, passed.flags) == (Status.PASS, ("nan_in_reference",))
    assert "1 NaN in the reference and in the candidate" in passed.sentence
    all_nan = verdict(torch.full((3,), NAN), torch.full((3,), NAN), name="y")
    assert all_nan.status is Status.ERROR
    assert all_nan.sentence == "nothing_compared: y has no element that is finite on both sides"


@pytest.mark.parametrize(
    ("reference", "candidate", "words"),
    [
        (NAN, 1.0, "1 lost on the device, first at index (1,)"),
        (1.0, NAN, "1 made by the device, first at index (1,)"),
        (INF, 1.0, "1 lost on the device"),
        (NAN, INF, "1 of another kind"),
    ],
)
def test_nonfinite_differences_fail_by_class(reference, candidate, words):
    failed = verdict(torch.tensor([1.0, reference]), torch.tensor([1.0, candidate]), name="y")
    assert failed.status is Status.FAIL
    assert words in failed.sentence


def test_the_unaligned_dimension_is_named():
    reference = torch.ones(2, 65)
    reference[1, 3] = NAN
    candidate = torch.where(reference.isnan(), INF, reference)
    assert "the last dimension 65 is no multiple of 64" in verdict(reference, candidate, name="y").sentence


def test_a_wider_vocabulary_names_both_widths():
    failed = verdict(torch.ones(1, 2, 50257), torch.ones(1, 2, 50304), torch.ones(1, 2, 50257))
    assert failed.sentence == ("structure of logits differs: shape (1, 2, 50304) against the reference's (1, 2, 50257)")


def test_integers_are_exact():
    ids = torch.tensor([1, 2, 2**31 + 5])
    narrowed = verdict(ids, ids.to(torch.int32), name="ids")
    assert narrowed.status is Status.FAIL
    assert "number of unequal elements of ids is 1 (limit 0), worst at index (2,)" in narrowed.sentence
    same = verdict(ids[:2], ids[:2].to(torch.int32), name="ids")
    assert same.status is Status.PASS
    assert "ids came back as int32 where the reference has int64" in same.sentence


def test_unwritten_buffers_and_copies_are_hinted_at():
    pattern = torch.full((4,), 0xAAAAAAAA - (1 << 32), dtype=torch.int32)
    failed = verdict(torch.arange(4), pattern, name="ids")
    assert "one value throughout (0xaaaaaaaa), likely an unwritten buffer" in failed.sentence
    given = torch.tensor([[1.0, 2.0]])
    wanted = {"y": torch.tensor([[3.0, 4.0]])}
    comparison = compare_outputs(wanted, {"y": given}, wanted, inputs={"x": given})
    assert "it repeats the input x bit for bit" in judge(case(), COMPLETED, comparison, observations()).sentence


def tie(gap, flipped_by, control_error):
    """One position whose first two logits are ``gap`` apart and swapped on the device."""
    reference = torch.zeros(1, 1, 64)
    reference[0, 0, :2] = torch.tensor([16.0, 16.0 - gap])
    candidate, control = reference.clone(), reference.clone()
    candidate[0, 0, 1] += flipped_by
    control[0, 0] += control_error * torch.tensor([1.0, -1.0]).repeat(32)
    return verdict(reference, candidate, control)


def test_a_swap_within_a_tie_is_no_wrong_token():
    for gap in (0.0, 0.05):
        tied = tie(gap, gap + 0.01, 0.005)
        assert (tied.status, tied.flags) == (Status.PASS, ("near_tie",))
    wrong = tie(0.5, 0.51, 0.005)
    assert wrong.status is Status.FAIL
    assert "token_disagreement" in [finding.metric for finding in wrong.findings if not finding.within]


def test_one_flipped_token_is_judged_by_its_margin():
    reference, error, other = tensors(shape=(1, 8, 64))
    top = reference[0, 3].topk(2).indices
    reference[0, 3, top[1]] = reference[0, 3, top[0]] - 1e-3
    candidate = reference + 1e-3 * error
    candidate[0, 3, top[1]] = reference[0, 3, top[0]] + 1e-2
    passed = verdict(reference, candidate, reference + 1e-3 * other)
    assert passed.status is Status.PASS
    assert "near_tie" in passed.flags


def test_float32_with_the_error_of_a_shorter_format_fails_with_a_hint():
    reference, *_ = tensors()
    candidate = reference.bfloat16().float()
    comparison = compare_outputs(
        {"y": reference}, {"y": candidate}, {"y": reference}, candidate_format="float32", control_format="float32"
    )
    failed = judge(case(dtype=Dtype.FLOAT32), COMPLETED, comparison, observations())
    assert failed.status is Status.FAIL
    assert "an error of this size fits a lower precision mode" in failed.sentence


def test_an_all_zero_reference_wants_zeros():
    zero = torch.zeros(4)
    assert verdict(zero, zero, name="y").status is Status.PASS
    failed = verdict(zero, torch.tensor([0, 0, 1e-3, 0]), name="y")
    assert "absolute error against an all-zero reference of y is 0.001" in failed.sentence
    assert failed.status is Status.FAIL


def test_without_a_control_the_guards_decide_and_the_flag_says_so():
    reference, error, _ = tensors()
    for size, status in ((1e-3, Status.PASS), (0.2, Status.FAIL)):
        comparison = compare_outputs({"y": reference}, {"y": reference + size * error}, None)
        judged = judge(case(), COMPLETED, comparison, observations())
        assert (judged.status, judged.flags) == (status, ("no_control",))


def test_one_step_of_a_module_is_held_more_tightly_than_one_step_of_the_whole_model():
    whole, module = (
        finding(verdict(one, one.half(), name=name), metric).limit
        for one in [torch.rand(1, 1, 8)]
        for name, metric in (("logits", "typical_ratio"), ("module:lm_head", "module_ratio"))
    )
    assert (whole / 2.75, module / 6) == pytest.approx((math.exp(2), math.exp(1)))


def test_module_outputs_have_a_limit_of_their_own():
    reference, error, other = tensors()
    parts = reference, reference + 0.02 * error, reference + 1e-3 * other
    failed = verdict(*parts, name="module:layers.3.mlp")
    assert failed.status is Status.FAIL
    assert "relative L2 error of module:layers.3.mlp is" in failed.sentence
    relaxed = verdict(
        *parts,
        name="module:layers.3.mlp",
        tolerance=Tolerance(module_ratio=100, reason="known to be coarse"),
    )
    assert (relaxed.status, relaxed.flags) == (Status.PASS, ("relaxed",))


def test_a_relaxed_tolerance_that_was_not_needed_is_not_flagged():
    reference, error, other = tensors()
    passed = verdict(
        reference,
        reference + 1e-3 * error,
        reference + 1e-3 * other,
        tolerance=Tolerance(error_ratio=50, reason="known to be coarse"),
    )
    assert (passed.status, passed.flags) == (Status.PASS, ())


def sampled(candidate, control, **changes):
    comparison = compare_outputs(
        {"logits": tensors()[0]}, {"logits": candidate}, {"logits": control}, logits=["logits"], sampling=Sampling()
    )
    return judge(case(check=Check.SAMPLING, **changes), COMPLETED, comparison, observations())


def test_draws_are_judged_in_units_of_the_control():
    reference, _, noise = tensors()
    control = reference + 5e-4 * noise
    assert finding(sampled(reference, control), "sampling_ratio").value == 0
    found = sampled(reference * 1.2, control)
    one = finding(found, "sampling_ratio")
    assert not one.within
    assert one.limit == finding(found, "error_ratio").limit
    ratios = dict.fromkeys(("error_ratio", "typical_ratio", "worst_ratio"), 500.0)
    wide = Tolerance(**ratios, relative_l2=9, vector_l2=9, kl=9, reason="for the test")
    assert sampled(reference * 1.2, control, tolerance=wide).status is Status.PASS


def test_draws_that_could_not_have_come_out_otherwise_prove_nothing():
    certain = torch.zeros(1, 6, 64)
    certain[..., 3] = 90.0
    comparison = compare_outputs({"logits": certain}, {"logits": certain}, None, logits=["logits"], sampling=Sampling())
    found = judge(case(check=Check.SAMPLING), COMPLETED, comparison, observations())
    assert (found.status, found.sentence) == (
        Status.ERROR,
        "nothing_compared: no position has two tokens that are drawn often; raise inputs.sampling.draws",
    )


def test_a_device_that_answers_differently_when_asked_again_is_flagged():
    reference, error, other = tensors()
    parts = reference, reference + 1e-3 * error, reference + 1e-3 * other
    again = verdict(*parts, observed=observations(unstable=("logits",)))
    assert (again.status, again.flags) == (Status.PASS, ("unstable",))


def test_a_drill_is_flagged():
    reference, *_ = tensors()
    drilled = verdict(reference, reference.half(), observed=observations(drills=("scale_weight",)))
    assert drilled.flags == ("drilled",)


def expected(outcome, **changes):
    return Expectation(outcome=outcome, reason="known defect of softmax", **changes)


def test_an_expected_failure_is_xfail_and_a_pass_is_xpass():
    reference, error, _ = tensors()
    wrong = verdict(reference, reference + error, expectation=expected("outside_rule"))
    assert wrong.status is Status.XFAIL
    assert wrong.sentence.endswith("(expected: known defect of softmax)")
    right = verdict(reference, reference.half(), expectation=expected("outside_rule"), expectation_at="models.yaml:14")
    assert right.sentence.startswith(
        "passes although outside_rule is expected, remove the entry at models.yaml:14 (known defect of softmax): "
    )
    assert (right.status, right.stale_expectation) == (
        Status.XPASS,
        "outside_rule: known defect of softmax",
    )


def test_a_failure_of_another_kind_is_a_failure():
    crash = Outcome(kind=OutcomeKind.CRASH, message="SIGSEGV")
    judged = judge(case(expectation=expected("outside_rule")), crash, None, {})
    assert judged.status is Status.FAIL
    assert judged.sentence == "crash where outside_rule is expected: crash: SIGSEGV", (
        "not the reason of another failure"
    )
    known = judge(case(expectation=expected(OutcomeKind.CRASH)), crash, None, {})
    assert known.status is Status.XFAIL


def test_an_expectation_that_is_set_aside_changes_no_status_and_is_noted():
    crash = Outcome(kind=OutcomeKind.CRASH, message="SIGSEGV")
    told = [
        judge(case(expectation=expected(outcome), expectation_at="models.yaml:14"), crash, None, {}, mode=VALIDATE)
        for outcome in (OutcomeKind.CRASH, "outside_rule")
    ]
    assert [(one.status, one.flags, one.sentence) for one in told] == [
        (
            Status.FAIL,
            ("as_expected",),
            "crash: SIGSEGV (crash is expected at models.yaml:14: known defect of softmax)",
        ),
        (
            Status.FAIL,
            ("unexpected",),
            "crash: SIGSEGV (outside_rule is expected at models.yaml:14: known defect of softmax)",
        ),
    ]


def test_a_pass_where_expectations_are_set_aside_names_the_entry_and_expiry_is_nothing():
    reference, error, _ = tensors()
    comparison = compare_outputs({"hidden": reference}, {"hidden": reference.half()}, None)
    entry = expected("outside_rule", expires=date(2026, 1, 1))
    late = date(2026, 2, 2)
    passed = judge(case(expectation=entry), COMPLETED, comparison, observations(), late, VALIDATE)
    assert (passed.status, passed.flags[-1]) == (Status.PASS, "unexpected")
    assert passed.stale_expectation == "outside_rule: known defect of softmax"
    wrong = compare_outputs({"hidden": reference}, {"hidden": reference + error}, None)
    assert judge(case(expectation=entry), COMPLETED, wrong, observations(), late, VALIDATE).status is Status.FAIL
    plain = judge(case(), COMPLETED, comparison, observations(), late, VALIDATE)
    assert plain == judge(case(), COMPLETED, comparison, observations(), late)


@pytest.mark.parametrize(
    ("ends", "gating", "validate"),
    [
        ([(Status.PASS, OutcomeKind.COMPLETED), (Status.FAIL, OutcomeKind.CRASH)], 1, 0),
        ([(Status.FAIL, OutcomeKind.CRASH), (Status.NOTRUN, OutcomeKind.UNAVAILABLE)], 1, 1),
        ([(Status.FAIL, OutcomeKind.CRASH), (Status.ERROR, OutcomeKind.NOT_EXERCISED)], 3, 3),
        ([], 3, 3),
    ],
)
def test_where_expectations_are_set_aside_only_what_was_not_seen_is_red(ends, gating, validate):
    assert exit_status(ends) == gating
    assert exit_status(ends, mode=VALIDATE) == validate


def test_an_expectation_does_not_hide_what_proves_nothing():
    idle = Outcome(kind=OutcomeKind.NOT_EXERCISED)
    assert judge(case(expectation=expected("outside_rule")), idle, None, {}).status is Status.ERROR


def test_an_expired_expectation_is_an_error():
    reference, error, _ = tensors()
    entry = expected("outside_rule", expires=date(2026, 1, 1))
    before = verdict(reference, reference + error, today=date(2025, 12, 31), expectation=entry)
    after = verdict(reference, reference + error, today=date(2026, 1, 1), expectation=entry)
    assert (before.status, after.status) == (Status.XFAIL, Status.ERROR)
    assert after.sentence.startswith("the expectation of outside_rule expired on 2026-01-01: renew or remove it")
