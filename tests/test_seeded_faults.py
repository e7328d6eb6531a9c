"""The rules of peers at values where their answer is known, and the arithmetic of the study's tables."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.seeded_faults import rules, tables


def judged(reference: torch.Tensor, candidate: torch.Tensor, control: torch.Tensor | None = None) -> Any:
    """What the peers look at: one output named ``logits``."""
    control = reference if control is None else control
    return SimpleNamespace(
        reference={"logits": reference}, control={"logits": control}, candidate={"logits": candidate}
    )


def score(name: str, case: Any) -> float:
    rule = next(rule for rule in rules.PEERS if rule.name == name)
    return rule.score(case, frozenset({"logits"}))


LOGITS = torch.tensor([[1.0, 2.0, 4.0, 0.0, -1.0, -2.0], [3.0, 1.0, 0.0, 2.0, -1.0, 5.0]])


def test_elementwise_rules_score_the_tolerance_that_would_pass() -> None:
    moved = LOGITS.clone()
    moved[0, 2] += 0.5
    assert score("allclose 1e-2", judged(LOGITS, moved)) == pytest.approx(0.5 / 5)
    assert torch.allclose(moved, LOGITS, rtol=0.1001, atol=0.1001)
    assert not torch.allclose(moved, LOGITS, rtol=0.0999, atol=0.0999)


def test_correlation_and_cosine_are_blind_to_scale() -> None:
    case = judged(LOGITS, 2 * LOGITS)
    assert (score("PCC 0.99", case), score("cosine 0.99", case)) == (pytest.approx(0), pytest.approx(0))


def test_token_rules_see_the_order_alone() -> None:
    flipped = LOGITS.clone()
    flipped[0, 1] = 4.5
    assert score("greedy tokens", judged(LOGITS, flipped)) == 0.5
    assert score("top-5 membership", judged(LOGITS, flipped)) == 0.0
    flipped[0, 5] = 9.0  # the last of six becomes the first
    assert score("top-5 membership", judged(LOGITS, flipped)) == 0.5


def test_nan_is_infinitely_bad() -> None:
    broken = LOGITS.clone()
    broken[1, 1] = math.nan
    for name in ("allclose 1e-2", "PCC 0.99", "cosine 0.99", "dynamo same"):
        assert score(name, judged(LOGITS, broken)) == math.inf


def test_the_score_of_dynamo_agrees_with_dynamo_itself() -> None:
    torch.manual_seed(2)
    reference = torch.randn(64, 64)
    control = reference.half()
    for error in (1e-4, 1e-3, 3e-3, 1e-2):
        candidate = (reference + error * torch.randn(64, 64)).half()
        case = judged(reference, candidate, control)
        assert (score("dynamo same", case) > 1) == rules.dynamo_itself(case)


def line(key: str, kind: str, value: float, *, alarm: bool) -> dict[str, Any]:
    scores = {name: [value, alarm] for name in tables.NAMES}
    return {"key": key, "kind": kind, "matters": True, "half": "held-out", "scores": scores}


def test_rules_are_compared_at_equal_counts_of_false_alarms(tmp_path: Path) -> None:
    lines = [
        *(line(f"clean/{n}", "clean", n / 10, alarm=False) for n in range(10)),
        *(line(f"fault/{n}", "fault", 0.55 + n / 10, alarm=True) for n in range(10)),
    ]
    path = tmp_path / "measured.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in (*lines, lines[-1])))
    measured = tables.read(path)
    assert (len(measured.clean), len(measured.faults)) == (10, 10)
    assert [tables.at_most(measured, "ours", allowed) for allowed in (0, 1, 4, 10)] == [0.6, 0.7, 1.0, 1.0]
    assert tables.area(measured, "ours") == pytest.approx(0.9)
