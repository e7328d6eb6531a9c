"""Logits as distributions over a vocabulary, position by position."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from harness.compare.formats import NumberFormat
from harness.compare.pairs import Side
from harness.compare.vectors import Vectors
from harness.records import Divergence, LogitNumbers

ROWS = 1 << 18
"""Logits to a block, in whole rows: 2 MB for each float64 buffer."""
KEPT_DIVERGENCES = 32
TOP = 5


@dataclass(frozen=True)
class _Reference:
    """One block of the reference's rows."""

    logits: torch.Tensor
    log_probabilities: torch.Tensor
    probabilities: torch.Tensor
    top: torch.Tensor
    """Token ids of the largest logits, in order."""
    margins: torch.Tensor
    """Between first and second token; empty with a vocabulary of one."""
    tokens: torch.Tensor
    """The first token of each row, the lowest id among equals."""
    control_errors: torch.Tensor | None
    """RMS error of the control's logits in each row."""


def compare_logits(
    reference: torch.Tensor, sides: Mapping[str, Side], vectors: Vectors, control: str = "control"
) -> dict[str, LogitNumbers]:
    """Return each side's numbers for logits of shape [..., vocabulary], in float64.

    ``vectors`` says which positions count and how large each side's error is there. The side named
    ``control`` gives the scale of error that each divergence of the other sides is reported with.
    """
    vocabulary = reference.shape[-1]
    rows = reference.reshape(-1, vocabulary)
    passes = {
        name: _SidePass(side.tensor.reshape(-1, vocabulary), side.format, vectors.leading)
        for name, side in sides.items()
    }
    errors = (vectors.sides[control].error / vocabulary).sqrt() if control in sides else None
    step = max(1, ROWS // vocabulary)
    for start in range(0, len(vectors.rows), step):
        numbers = vectors.rows[start : start + step]
        block = _reference_block(
            rows[numbers].to(torch.float64), None if errors is None else errors[start : start + step]
        )
        for side_pass in passes.values():
            side_pass.add(block, numbers)
    return {name: passes[name].record(*_steps(vectors, name)) for name in sides}


def _steps(vectors: Vectors, side: str) -> tuple[tuple[float | None, ...], int | None]:
    """Return the relative L2 error per step (last leading dimension), batch rows joined, and the worst."""
    count = vectors.leading[-1] if vectors.leading else 1
    which = vectors.rows % count
    zeros = torch.zeros(count, dtype=torch.float64)
    squares = vectors.sides[side]
    sums = (zeros.index_add(0, which, part).tolist() for part in (squares.error, squares.reference))
    by_step = tuple(_relative(*pair) for pair in zip(*sums, strict=True))
    known = [(value, -step) for step, value in enumerate(by_step) if value is not None]
    return by_step, -max(known)[1] if known else None


def _reference_block(logits: torch.Tensor, control_errors: torch.Tensor | None) -> _Reference:
    top = logits.topk(min(TOP, logits.shape[-1]), dim=-1)
    log_probabilities = torch.log_softmax(logits, dim=-1)
    return _Reference(
        logits=logits,
        log_probabilities=log_probabilities,
        probabilities=log_probabilities.exp(),
        top=top.indices,
        margins=top.values[:, 0] - top.values[:, 1] if top.values.shape[1] > 1 else top.values[:, :0],
        tokens=_first_tokens(logits),
        control_errors=control_errors,
    )


def _first_tokens(logits: torch.Tensor) -> torch.Tensor:
    """Return the token of the largest logit; numpy promises the lowest id among equals."""
    return torch.from_numpy(logits.numpy().argmax(axis=-1))


@dataclass
class _SidePass:
    """Everything that is accumulated about one side's logits."""

    rows: torch.Tensor
    format: NumberFormat
    leading: tuple[int, ...]
    positions: int = 0
    undefined: int = 0
    agreements: int = 0
    overlap: float = 0.0
    divergences: list[Divergence] = field(default_factory=list)
    kl: list[torch.Tensor] = field(default_factory=list)
    margins: list[torch.Tensor] = field(default_factory=list)
    numbers: list[torch.Tensor] = field(default_factory=list)
    defined: list[torch.Tensor] = field(default_factory=list)

    def add(self, reference: _Reference, numbers: torch.Tensor) -> None:
        """Add the rows ``numbers``."""
        logits = self.rows[numbers].to(torch.float64)
        defined = _is_distribution(logits) & _is_distribution(reference.logits)
        self.numbers.append(numbers)
        self.defined.append(defined)
        self.positions += len(numbers)
        self.undefined += int((~defined).sum())
        self._add_distributions(reference, logits, defined)
        self._add_tokens(reference, logits, numbers, defined)

    def _add_distributions(self, reference: _Reference, logits: torch.Tensor, defined: torch.Tensor) -> None:
        """Add KL(reference || side), the overlap of the top tokens and the margins of defined rows."""
        rows = slice(None) if bool(defined.all()) else defined  # a slice copies nothing
        logits, log_p, p = logits[rows], reference.log_probabilities[rows], reference.probabilities[rows]
        terms = p * (log_p - torch.log_softmax(logits, dim=-1))
        self.kl.append(torch.where(p > 0, terms, 0.0).sum(-1).clamp_min(0))
        theirs = reference.top[rows]
        ours = logits.topk(theirs.shape[1], dim=-1).indices
        shared = (ours.unsqueeze(-1) == theirs.unsqueeze(-2)).any(-1)
        self.overlap += float(shared.to(torch.float64).mean(-1).sum())
        self.margins.append(reference.margins[rows])

    def _add_tokens(
        self, reference: _Reference, logits: torch.Tensor, numbers: torch.Tensor, defined: torch.Tensor
    ) -> None:
        """Count agreeing first tokens and describe the rows that disagree."""
        tokens = _first_tokens(logits)
        agree = tokens == reference.tokens
        self.agreements += int((agree & defined).sum())
        for row in (~agree & defined).nonzero().reshape(-1).tolist():
            wanted, other = int(reference.tokens[row]), int(tokens[row])
            at_wanted, at_other = (float(reference.logits[row, token]) for token in (wanted, other))
            errors = logits[row, [wanted, other]] - reference.logits[row, [wanted, other]]
            self.divergences.append(
                Divergence(
                    position=self._position(int(numbers[row])),
                    reference_token=wanted,
                    other_token=other,
                    reference_margin=at_wanted - at_other,
                    error_at_pair=float(errors.abs().sum()),
                    ulp=self.format.ulp(at_wanted),
                    control_error=_at(reference.control_errors, row),
                )
            )

    def _position(self, row: int) -> tuple[int, ...]:
        return tuple(int(part) for part in np.unravel_index(row, self.leading)) if self.leading else ()

    def record(self, by_step: tuple[float | None, ...], worst_step: int | None) -> LogitNumbers:
        """Return the numbers; what no position defines stays None."""
        if not self.positions:
            return LogitNumbers(positions=0)
        defined = self.positions - self.undefined
        base = LogitNumbers(
            positions=self.positions,
            undefined_positions=self.undefined,
            top1_agreements=self.agreements,
            divergences=self._gravest(),
            divergent=len(self.divergences),
            first_divergent=self.divergences[0].position if self.divergences else None,
            relative_l2_by_step=by_step,
            worst_step=worst_step,
        )
        if not defined:
            return base
        kl, margins = torch.cat(self.kl), torch.cat(self.margins)
        worst = int(kl.argmax())
        rows = torch.cat(self.numbers)[torch.cat(self.defined)]
        return base.model_copy(
            update={
                "kl_mean": float(kl.mean()),
                "kl_max": float(kl[worst]),
                "kl_max_position": self._position(int(rows[worst])),
                "top5_overlap": self.overlap / defined,
                "margin_median": float(margins.median()) if margins.numel() else None,
                "margin_min": float(margins.min()) if margins.numel() else None,
            }
        )

    def _gravest(self) -> tuple[Divergence, ...]:
        """Return the divergences that are the hardest to excuse, in order of position."""
        ranked = sorted(self.divergences, key=_gravity, reverse=True)[:KEPT_DIVERGENCES]
        return tuple(sorted(ranked, key=lambda divergence: divergence.position))


def _at(values: torch.Tensor | None, index: int) -> float | None:
    return None if values is None else float(values[index])


def _relative(error_squares: float, squares: float) -> float | None:
    """Return a relative L2 error: undefined for zero by zero, infinite for something by zero."""
    if squares > 0:
        return math.sqrt(error_squares / squares)
    return math.inf if error_squares > 0 else None


def _gravity(divergence: Divergence) -> float:
    """Return the margin in units of what rounding may do to it."""
    return divergence.reference_margin / ((divergence.control_error or 0.0) + divergence.ulp)


def _is_distribution(logits: torch.Tensor) -> torch.Tensor:
    """Tell for each row whether a softmax of it exists: no NaN, no +inf, not all -inf."""
    return torch.isfinite(logits.amax(dim=-1)) & ~torch.isnan(logits).any(-1)
