"""Structure first: names, shapes, kinds; then numbers for what fits."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from harness.compare import compare_outputs
from harness.errors import UsageError


def mismatch(reference, candidate, **options):
    (output,) = compare_outputs({"y": reference}, {"y": candidate}, None, **options).outputs
    return output.mismatch


@pytest.mark.parametrize(
    ("reference", "candidate", "expected"),
    [
        ((1, 1), (1,), "shape (1,) against the reference's (1, 1)"),
        ((1, 8, 5), (8, 5), "shape (8, 5) against the reference's (1, 8, 5)"),
        ((5, 1), (5, 2), "shape (5, 2) against the reference's (5, 1)"),
        ((5, 2), (0,), "shape (0,) against the reference's (5, 2)"),
        ((0,), (5, 2), "shape (5, 2) against the reference's (0,)"),
    ],
)
def test_shapes_are_never_broadcast(reference, candidate, expected):
    assert mismatch(torch.ones(reference), torch.ones(candidate)) == expected


def test_missing_and_unexpected_outputs_are_named():
    comparison = compare_outputs({"a": torch.ones(2)}, {"b": torch.ones(2)}, None)
    assert [(output.name, output.mismatch) for output in comparison.outputs] == [
        ("a", "missing in the candidate"),
        ("b", "unexpected: the reference has no such output"),
    ]
    assert comparison.elements == 0


def test_both_empty_is_nothing_compared():
    comparison = compare_outputs({"a": torch.ones(0, 3)}, {"a": torch.ones(0, 3)}, None)
    assert comparison.elements == 0
    assert comparison.outputs[0].candidate is None
    assert comparison.not_compared == ("a: empty, shape (0, 3)",)


def test_padded_vocabulary_needs_to_be_declared():
    reference = torch.eye(4, 6).unsqueeze(0)
    candidate = torch.cat([reference, torch.zeros(1, 4, 2)], dim=-1)
    assert mismatch(reference, candidate) == "shape (1, 4, 8) against the reference's (1, 4, 6)"
    declared = compare_outputs({"y": reference}, {"y": candidate}, None, logits=["y"], padded_vocabulary=["y"]).outputs[
        0
    ]
    assert (declared.mismatch, declared.candidate.unequal) == (None, 0)
    candidate[0, 2, 7] = 5
    assert (
        mismatch(reference, candidate, padded_vocabulary=["y"])
        == "column 7 of the vocabulary's padding (6 tokens) wins a position"
    )


@dataclass
class Pair:
    first: torch.Tensor
    second: object


class Opaque:
    pass


def test_tensors_inside_structures_are_compared_and_the_rest_is_listed():
    cache = DynamicCache()
    cache.update(torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), 0)
    outputs = {
        "logits": torch.ones(2),
        "none": None,
        "nested": (torch.ones(3), [Pair(torch.ones(4), None)], OrderedDict(x=np.ones(5))),
        "cache": cache,
        "opaque": Opaque(),
        "loss": 0.5,
    }
    comparison = compare_outputs(outputs, outputs, outputs)
    assert [(output.name, output.elements) for output in comparison.outputs] == [
        ("logits", 2),
        ("nested.0", 3),
        ("nested.1.0.first", 4),
        ("nested.2.x", 5),
        ("cache.layers.0.keys", 24),
        ("cache.layers.0.values", 24),
        ("loss", 1),
    ]
    assert comparison.not_compared == (
        "opaque (reference): no tensor known inside Opaque",
        "opaque (candidate): no tensor known inside Opaque",
        "opaque (control): no tensor known inside Opaque",
    )


def test_integer_dtypes_are_reported_apart_from_values():
    ids = torch.tensor([1, 2, 3])
    output = compare_outputs({"ids": ids}, {"ids": ids.to(torch.int32)}, None).outputs[0]
    assert (output.kind, output.reference_dtype, output.candidate_dtype) == ("integer", "int64", "int32")
    assert (output.mismatch, output.candidate.unequal) == (None, 0)
    flags = compare_outputs(
        {"mask": torch.tensor([True, False])}, {"mask": torch.tensor([1, 0], dtype=torch.uint8)}, None
    ).outputs[0]
    assert (flags.candidate_dtype, flags.candidate.unequal) == ("uint8", 0)


def test_an_id_beyond_int32_differs():
    ids = torch.tensor([1, 2**31 + 5])
    output = compare_outputs({"ids": ids}, {"ids": ids.to(torch.int32)}, None).outputs[0]
    assert (output.candidate.unequal, output.candidate.max_abs_index) == (1, (1,))
    assert output.candidate.max_abs == 2.0**32


def test_a_float_against_an_integer_is_a_structural_difference():
    assert mismatch(torch.ones(2), torch.ones(2, dtype=torch.int64)) == ("dtype int64 against the reference's float32")


def test_padding_is_excluded():
    reference = torch.arange(12.0).reshape(2, 3, 2)
    candidate = reference.clone()
    candidate[1, 0] = float("nan")
    candidate[1, 1] = 99
    mask = torch.tensor([[True, True, True], [False, False, True]])
    output = compare_outputs({"y": reference}, {"y": candidate}, None, masks={"y": mask}).outputs[0]
    assert (output.elements, output.candidate.finite_pairs, output.candidate.unequal) == (8, 8, 0)
    assert output.candidate_census.nan == 0
    candidate[1, 2, 1] += 0.5
    worst = compare_outputs({"y": reference}, {"y": candidate}, None, masks={"": mask}).outputs[0].candidate
    assert (worst.max_abs, worst.max_abs_index) == (0.5, (1, 2, 1))


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(UsageError, match=r"mask of output 'y' has shape \(3,\), the output \(2, 3\)"):
        compare_outputs({"y": torch.ones(2, 3)}, {"y": torch.ones(2, 3)}, None, masks={"y": torch.ones(3).bool()})


def test_a_control_that_does_not_fit_is_left_out_and_said():
    outputs = {"y": torch.ones(2)}
    (output,) = compare_outputs(outputs, outputs, {"y": torch.ones(3)}).outputs
    assert (output.control, output.control_mismatch) == (None, "shape (3,) against the reference's (2,)")


def test_a_copy_of_an_input_is_pointed_out():
    given = torch.tensor([[1.0, 2.0]])
    comparison = compare_outputs({"y": torch.tensor([[3.0, 4.0]])}, {"y": given.half()}, None, inputs={"x": given})
    assert comparison.outputs[0].copy_of == "x"


def test_unknown_formats_are_refused():
    with pytest.raises(UsageError, match="unknown number format 'fp8'; known are dlfloat16, float16"):
        compare_outputs({}, {}, None, candidate_format="fp8")
