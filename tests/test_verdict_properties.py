"""What must hold for every verdict: a worse device never looks better, and packaging changes nothing."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from harness.compare import compare_outputs
from harness.records import Dtype, Outcome, OutcomeKind, Status, Task
from harness.verdict import judge
from tests.test_verdict import case, observations

COMPLETED = Outcome(kind=OutcomeKind.COMPLETED)
RANK = {Status.PASS: 0, Status.FAIL: 1, Status.ERROR: 2}

numbers = st.floats(-50, 50, width=32).map(lambda value: 0.0 if abs(value) < 1e-6 else value)
sizes = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(2, 5))
kinds = st.sampled_from([(task, dtype) for task in Task for dtype in Dtype])
scales = st.floats(0, 1).map(lambda share: 10.0 ** (-4 * share))


def tensors(draw_from, shape, count):
    arrays_of = arrays.arrays(np.float64, shape, elements=numbers)
    return tuple(torch.from_numpy(draw_from.draw(arrays_of).copy()) for _ in range(count))


def status(reference, candidate, control, kind, logits=True):
    comparison = compare_outputs(
        reference, candidate, control, logits=list(reference) if logits else [], control_format=kind[1].value
    )
    task, dtype = kind
    return judge(case(task=task, dtype=dtype), COMPLETED, comparison, observations()).status


def some_case(data):
    """A reference with an error of the candidate's direction and a control, sizes from rounding to nonsense."""
    shape = data.draw(sizes)
    reference, error, noise = tensors(data, shape, 3)
    error = error * data.draw(scales)
    return reference, error, reference + noise * data.draw(scales) * 1e-2


@settings(deadline=None, max_examples=80)
@given(st.data(), kinds, st.floats(1.01, 100))
def test_a_verdict_never_improves_when_the_error_grows(data, kind, growth):
    reference, error, control = some_case(data)
    small, large = (
        status({"y": reference}, {"y": reference + size * error}, {"y": control}, kind) for size in (1.0, growth)
    )
    assert RANK[large] >= RANK[small]


@settings(deadline=None, max_examples=80)
@given(st.data(), kinds)
def test_splitting_a_batch_never_turns_a_failure_into_a_pass(data, kind):
    reference, error, control = some_case(data)
    assume(reference.shape[0] > 1)
    candidate = reference + error
    whole = status({"y": reference}, {"y": candidate}, {"y": control}, kind)
    parts = status(
        *({f"y.{row}": side[row : row + 1] for row in range(len(side))} for side in (reference, candidate, control)),
        kind,
    )
    assert RANK[parts] >= RANK[whole]


@settings(deadline=None, max_examples=30)
@given(st.data(), kinds, st.randoms())
def test_the_order_of_outputs_does_not_matter(data, kind, random):
    sides = {}
    for name in ("a", "b", "c"):
        reference, error, control = some_case(data)
        sides[name] = reference, reference + error, control
    shuffled = list(sides)
    random.shuffle(shuffled)
    first, second = (
        status(*({name: sides[name][index] for name in order} for index in range(3)), kind)
        for order in (sides, shuffled)
    )
    assert first == second


@settings(deadline=None, max_examples=30)
@given(st.data(), kinds)
def test_an_equal_tensor_more_never_turns_a_failure_into_a_pass(data, kind):
    reference, error, control = some_case(data)
    (equal,) = tensors(data, (4,), 1)
    sides = [{"y": side} for side in (reference, reference + error, control)]
    alone = status(*sides, kind, logits=False)
    together = status(*({**side, "equal": equal} for side in sides), kind, logits=False)
    assert RANK[together] >= RANK[alone]


@settings(deadline=None, max_examples=30)
@given(st.data(), kinds)
def test_an_exact_device_passes_and_a_broken_one_does_not(data, kind):
    reference, _, control = some_case(data)
    exact = status({"y": reference}, {"y": reference.clone()}, {"y": control}, kind)
    assert exact is Status.PASS
    broken = reference.clone()
    broken[-1, -1, -1] = float("nan")
    assert status({"y": reference}, {"y": broken}, {"y": control}, kind) is Status.FAIL
