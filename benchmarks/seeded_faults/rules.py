"""The rules that are compared: ours, and those of peers from their public definitions or from their packages.

Each gives a score (larger is worse) and the threshold at which it fails: the score is what the ROC sweeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch

from benchmarks.seeded_faults.subjects import Judged

Pair = tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]
"""Name, reference (float32), control and candidate of one output."""


@dataclass(frozen=True)
class Rule:
    """A rule of a peer."""

    name: str
    source: str
    score: Callable[[Judged, frozenset[str]], float]
    threshold: float
    """Fails when the score is above."""


def ours(judged: Judged) -> float:
    """The largest share of a limit that was used up; above 1 fails."""
    shares = [0.0]
    for finding in judged.verdict.findings:
        if not finding.limit or finding.value is None or not math.isfinite(finding.value):
            shares.append(0.0 if finding.within else math.inf)
        elif finding.metric == "cosine":
            shares.append((1 - finding.value) / (1 - finding.limit))
        else:
            shares.append(abs(finding.value) / finding.limit)
    return max(shares)


def pairs(judged: Judged) -> list[Pair]:
    """Final outputs only: that is what the peers look at."""
    return [
        (name, value.float(), judged.control[name], judged.candidate[name]) for name, value in judged.reference.items()
    ]


def _worst(one: Callable[[torch.Tensor, torch.Tensor], float]) -> Callable[[Judged, frozenset[str]], float]:
    def score(judged: Judged, logits: frozenset[str]) -> float:
        return max(one(reference, candidate.float()) for _, reference, _, candidate in pairs(judged))

    return score


def needed_tolerance(reference: torch.Tensor, candidate: torch.Tensor) -> float:
    """Smallest t for which allclose(atol=t, rtol=t) holds."""
    value = float(((candidate - reference).abs() / (1 + reference.abs())).max())
    return value if math.isfinite(value) else math.inf


def one_minus_pcc(reference: torch.Tensor, candidate: torch.Tensor) -> float:
    """1 - Pearson's correlation in float64, as tt-xla computes it."""
    x, y = reference.double().flatten(), candidate.double().flatten()
    value = float(torch.corrcoef(torch.stack([x, y]))[0, 1])
    return 1 - value if math.isfinite(value) else math.inf


def one_minus_cosine(reference: torch.Tensor, candidate: torch.Tensor) -> float:
    """1 - the smallest cosine over the vectors of the last dimension, as hf-adapters compares tokens."""
    value = float(torch.nn.functional.cosine_similarity(reference.double(), candidate.double(), dim=-1).min())
    return 1 - value if math.isfinite(value) else math.inf


def dynamo(judged: Judged, logits: frozenset[str]) -> float:
    """The excess that torch._dynamo.utils.same tests: res_error against 3 x ref_error + tol / 10 (tol 1e-3)."""
    worst = 0.0
    for _, reference, control, candidate in pairs(judged):
        exact, width = reference.double(), math.sqrt(reference.numel())
        mine = float((candidate.double() - exact).norm()) / width
        theirs = float((control.double() - exact).norm()) / width
        worst = max(worst, mine / (3.0 * theirs + 1e-3 / 10) if math.isfinite(mine) else math.inf)
    return worst


def dynamo_itself(judged: Judged) -> bool:
    """Whether torch._dynamo.utils.same, as PyTorch's benchmarks call it for 16-bit inference, fails."""
    from torch._dynamo.utils import same

    expected = {name: control for name, _, control, _ in pairs(judged)}
    found = {name: candidate for name, _, _, candidate in pairs(judged)}
    exact = {name: reference.double() for name, reference, _, _ in pairs(judged)}
    return not same(expected, found, exact, tol=1e-3, log_error=lambda *_: None)


def polygraphy_itself(judged: Judged) -> bool:
    """Whether Polygraphy's default comparison function fails."""
    from polygraphy.comparator import CompareFunc, IterationResult
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    compare = CompareFunc.simple()
    reference = IterationResult({name: one.numpy() for name, one, _, _ in pairs(judged)}, runner_name="reference")
    candidate = IterationResult({name: one.float().numpy() for name, _, _, one in pairs(judged)}, runner_name="device")
    return not all(bool(result) for result in compare(reference, candidate).values())


def token_mismatch(judged: Judged, logits: frozenset[str]) -> float:
    """Share of positions whose greedy token differs."""
    found = [
        float((reference.argmax(-1) != candidate.float().argmax(-1)).float().mean())
        for name, reference, _, candidate in pairs(judged)
        if name in logits
    ]
    return max(found, default=0.0)


def out_of_top_k(judged: Judged, logits: frozenset[str], k: int = 5) -> float:
    """Share of positions where either side's greedy token is not in the other's top five (vLLM's logprobs check)."""
    worst = 0.0
    for name, reference, _, candidate in pairs(judged):
        if name not in logits:
            continue
        count = min(k, reference.shape[-1])
        mine, theirs = candidate.float().topk(count, -1).indices, reference.topk(count, -1).indices
        inside = (mine == theirs[..., :1]).any(-1) & (theirs == mine[..., :1]).any(-1)
        worst = max(worst, float((~inside).float().mean()))
    return worst


PEERS = (
    Rule("allclose 1e-2", "torch.allclose(rtol=1e-2, atol=1e-2)", _worst(needed_tolerance), 1e-2),
    Rule("allclose 1e-3", "torch.allclose(rtol=1e-3, atol=1e-3)", _worst(needed_tolerance), 1e-3),
    Rule("PCC 0.99", "tt-xla, tt-forge", _worst(one_minus_pcc), 1e-2),
    Rule("cosine 0.99", "hf-adapters device tests", _worst(one_minus_cosine), 1e-2),
    Rule("cosine 0.999", "hf-adapters CPU lane", _worst(one_minus_cosine), 1e-3),
    Rule("dynamo same", "torch._dynamo.utils.same(fp64_ref, tol=1e-3)", dynamo, 1.0),
    Rule("Polygraphy", "CompareFunc.simple(): atol = rtol = 1e-5", _worst(needed_tolerance), 1e-5),
    Rule("top-5 membership", "vLLM check_logprobs_close", out_of_top_k, 0.0),
    Rule("greedy tokens", "exact token equality", token_mismatch, 0.0),
)

ITSELF: dict[str, Callable[[Judged], bool]] = {"dynamo same": dynamo_itself}
if find_spec("polygraphy"):
    ITSELF["Polygraphy"] = polygraphy_itself


def scores(judged: Judged, logits: frozenset[str]) -> dict[str, tuple[float, bool]]:
    """Score and alarm of every rule; a rule whose package is there is asked itself whether it alarms."""
    mine = ours(judged)
    found = {"ours": (mine, judged.verdict.status.value != "PASS")}
    with np.errstate(all="ignore"):
        for rule in PEERS:
            score = rule.score(judged, logits)
            own = ITSELF.get(rule.name)
            found[rule.name] = (score, own(judged) if own else not score <= rule.threshold)
    return found
