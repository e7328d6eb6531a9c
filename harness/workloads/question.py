"""What a case asks: a workload, and one or several batches after the check it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.errors import UsageError
from harness.records import Check, Inputs
from harness.workloads.base import Batch, Rows, Workload, fit, padded_batch

Tensors = dict[str, torch.Tensor]
FORCED = "forced_tokens"
"""Name under which a reference keeps the tokens that it chose, ``[batch, steps]``."""

LENGTHS = (1, 63, 64, 65, 128)
"""One token, and both sides of the 64 elements of 16 bits that fill a stick of 128 bytes."""


@dataclass(frozen=True)
class Ask:
    """One batch, and how its outputs are called."""

    batch: Batch
    suffix: str = ""
    """Behind the name of each output, after a space."""
    row: int | None = None
    """It is this row of the first batch, alone."""


@dataclass(frozen=True)
class Question:
    """What this case asks: the workload with its batches."""

    workload: Workload
    asks: tuple[Ask, ...]
    inputs: Inputs

    @property
    def batch(self) -> Batch:
        """The first, and for most checks only, batch."""
        return self.asks[0].batch

    def shorter(self) -> Question:
        """The same with one decode step at most and no row alone: what is taken apart module by module."""
        steps = self.inputs.decode_steps
        short = self.inputs.model_copy(update={"decode_steps": 1 if steps is None else min(1, steps)})
        return replace(self, inputs=short, asks=tuple(ask for ask in self.asks if ask.row is None))

    def run(self, model: torch.nn.Module, call: Callable[..., Any], forced: Mapping[str, torch.Tensor]) -> Tensors:
        """Named outputs of every batch on the host; ``forced`` holds the reference's tokens, or nothing."""
        outputs: Tensors = {}
        for ask in self.asks:
            tokens = _forced(ask, {**outputs, **forced})
            found = self.workload.run(model, call, ask.batch, self.inputs, tokens)
            outputs |= {f"{name}{ask.suffix}": tensor for name, tensor in found.items()}
        return outputs

    def logits(self, names: Collection[str]) -> frozenset[str]:
        """Those of some outputs that are logits."""
        return frozenset(name for name in names if _base(name) in self.workload.logits)

    def masks(self, names: Collection[str]) -> Tensors:
        """Where outputs that have padding in them hold something, bool ``[batch, sequence]``."""
        padded = {f"{name}{ask.suffix}": ask.batch for name, ask in self._outputs("positions") if ask.batch.padded}
        return {name: batch.mask.bool() for name, batch in padded.items() if name in names}

    def invariance(self, reference: Tensors, candidate: Tensors, control: Tensors) -> tuple[Tensors, Tensors, Tensors]:
        """Each row of the batch against the same row alone, as further outputs of reference, candidate and control.

        The candidate's own answer for the row alone stands in for the reference. The control is moved there: it
        differs from this as far as it differs from its reference in the batch, so that two right answers may be
        as far apart as each may be from the truth.
        """
        expected, found, scale = {}, {}, {}
        for name, ask in self._outputs():
            if ask.row is None or name not in candidate or candidate[name].shape != reference[name].shape:
                continue
            told = f"{name}{ask.suffix.replace('alone', 'batched against alone')}"
            batched = [
                self.batch.of_row(side[name], self.workload.layout[name], ask.row)
                for side in (reference, candidate, control)
            ]
            own = candidate[f"{name}{ask.suffix}"].float()
            expected[told], found[told], scale[told] = own, batched[1], own + (batched[2].float() - batched[0].float())
        return expected, found, scale

    def _outputs(self, layout: str | None = None) -> Iterator[tuple[str, Ask]]:
        """Name and ask of each output that the workload may give."""
        for ask in self.asks:
            for name, own in self.workload.layout.items():
                if layout in (None, own):
                    yield name, ask


def _base(name: str) -> str:
    return name.partition(" ")[0]


def _forced(ask: Ask, tokens: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The tokens that an ask is fed: a row alone gets those of its row in the batch."""
    if ask.row is None:
        return tokens.get(f"{FORCED}{ask.suffix}")
    whole = tokens.get(FORCED)
    return None if whole is None else whole[ask.row : ask.row + 1]


def asks(check: Check, rows: Rows, *, causal: bool) -> tuple[Ask, ...]:
    """The batches of a check that sets the shape itself. Raises UsageError for rows that cannot be checked so."""
    if check is Check.BLOCK_BOUNDARIES:
        return _lengths(rows)
    if check is Check.LEFT_PADDING:
        return _with_rows_alone(_left_padded(rows))
    return _with_rows_alone(padded_batch(_of_one_length(rows) if causal else _several(rows)))


def _lengths(rows: Rows) -> tuple[Ask, ...]:
    """The rows at each of `LENGTHS`, with one length of KV cache for all, and so one plan for the decode steps."""
    fitted = {length: tuple(fit(row, length, repeat=True) for row in rows.ids) for length in LENGTHS}
    return tuple(
        Ask(padded_batch(Rows(ids, rows.pad), room=max(LENGTHS)), f" at {length} token{'s' if length > 1 else ''}")
        for length, ids in fitted.items()
    )


def _several(rows: Rows) -> Rows:
    """The rows; a single one in three rotations, which are prompts of other content and the same length."""
    if len(rows.ids) > 1:
        return rows
    (only,) = rows.ids
    turns = sorted({len(only) * third // 3 for third in range(3)})
    return replace(rows, ids=tuple((*only[turn:], *only[:turn]) for turn in turns))


def _of_one_length(rows: Rows) -> Rows:
    shortest = min(len(row) for row in rows.ids)
    return _several(replace(rows, ids=tuple(row[:shortest] for row in rows.ids)))


def _left_padded(rows: Rows) -> Batch:
    """The rows; a single one whole, and its first two thirds and third."""
    if len(rows.ids) == 1:
        (only,) = rows.ids
        rows = replace(rows, ids=tuple(only[: max(1, len(only) * thirds // 3)] for thirds in (3, 2, 1)))
    batch = padded_batch(rows, left=True)
    if not batch.padded:
        raise UsageError("left-padding: the rows all have one length, so nothing is padded; give texts of several")
    return batch


def _with_rows_alone(batch: Batch) -> tuple[Ask, ...]:
    if len(batch.ids) < 2:
        raise UsageError("batch-invariance: a single row of one token is no batch; give more texts or a longer one")
    rows = range(len(batch.ids))
    return (Ask(batch), *(Ask(batch.alone(row), f" of row {row}, alone", row) for row in rows))
