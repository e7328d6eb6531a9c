"""Saved tensors and their rendering."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from harness.compare import compare_files, compare_outputs, render_text
from harness.errors import UsageError


def test_files_are_compared_by_tensor_name(tmp_path):
    reference = {"logits": torch.eye(3), "hidden": torch.ones(2)}
    save_file(reference, tmp_path / "reference.safetensors")
    save_file(reference | {"hidden": torch.zeros(2)}, tmp_path / "candidate.safetensors")
    comparison = compare_files(tmp_path / "reference.safetensors", tmp_path / "candidate.safetensors")
    by_name = {output.name: output for output in comparison.outputs}
    assert by_name["logits"].candidate_logits.top1_agreements == 3
    assert (by_name["hidden"].candidate.max_abs, by_name["hidden"].candidate_logits) == (1.0, None)


def test_unreadable_files_are_named(tmp_path):
    good, bad = tmp_path / "good.safetensors", tmp_path / "bad.safetensors"
    save_file({"a": torch.ones(1)}, good)
    bad.write_bytes(b"not safetensors")
    with pytest.raises(UsageError, match=r"bad\.safetensors: not a readable safetensors file"):
        compare_files(good, bad)
    with pytest.raises(UsageError, match=r"absent\.safetensors: no such file"):
        compare_files(good, tmp_path / "absent.safetensors")


def test_rendering_follows_torch_testing():
    reference = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    candidate = torch.tensor([[1.0, 2.0], [4.0, 8.5]])
    comparison = compare_outputs(
        {"hidden": reference, "gone": torch.ones(1)}, {"hidden": candidate, "odd": object()}, None
    )
    assert render_text(comparison).splitlines() == [
        "hidden: shape (2, 2), float32 against float32, 4 elements compared",
        "  Mismatched elements: 1 / 4 (25.0%) at atol 0.01, rtol 0.01",
        "  Greatest absolute difference: 0.5 at index (1, 1)",
        "  Smallest atol = rtol without a mismatch: 0.05556",
        "  Relative L2 error: 0.05423 (candidate)",
        "  Cosine similarity: 0.99966877 (candidate)",
        "  Pearson correlation: 0.99954137 (candidate)",
        "  Median ULP distance: 0 (candidate)",
        "  Largest ULP distance: 32 (candidate)",
        "  Best linear fit: 1.074 x reference + -0.1522",
        "gone: shape (1,), None against float32, 0 elements compared",
        "  Structure differs: missing in the candidate",
        "Not compared: odd (candidate): no tensor known inside object",
    ]


def test_rendering_says_when_nothing_was_compared():
    assert render_text(compare_outputs({}, {}, None)) == "Nothing was compared."


def test_a_control_that_does_not_match_is_refused(tmp_path):
    reference, control = tmp_path / "reference.safetensors", tmp_path / "control.safetensors"
    save_file({"a": torch.ones(2)}, reference)
    save_file({"b": torch.ones(2)}, control)
    with pytest.raises(UsageError, match=r"--control .*control\.safetensors: a: missing in the control; give the ref"):
        compare_files(reference, reference, control)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(UsageError, match="is a folder; name a safetensors file"):
        compare_files(tmp_path, tmp_path)


def test_names_cannot_steer_a_terminal():
    comparison = compare_outputs({"a\n\x1b[31m": torch.ones(1)}, {"a\n\x1b[31m": torch.ones(1)}, None)
    assert render_text(comparison).startswith("'a\\n\\x1b[31m': shape (1,), float32")
