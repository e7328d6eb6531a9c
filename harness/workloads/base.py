"""What every workload can do, and how texts become batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import torch

from harness.errors import UsageError
from harness.records import Inputs, Shape

Layout = Literal["rows", "positions", "tokens"]
"""How an output's leading dimensions follow the batch's: ``rows`` ``[batch, ...]``, ``positions``
``[batch, sequence, ...]`` with padding in it, ``tokens`` ``[real tokens, ...]``, row after row."""


@dataclass(frozen=True)
class Batch:
    """Host tensors that reference, control and candidate all get, bit for bit."""

    ids: torch.Tensor
    """Token ids, int64 ``[batch, sequence]``."""
    mask: torch.Tensor
    """1 for real tokens, int64 ``[batch, sequence]``."""
    room: int = 0
    """Sequence length that a KV cache is made for, where that is more than the batch's own."""

    @property
    def padded(self) -> bool:
        """Whether any position is padding."""
        return not bool(self.mask.all())

    @property
    def positions(self) -> torch.Tensor:
        """Place of each real token among its row's, int64 ``[batch, sequence]``; 0 at padding before them."""
        return (self.mask.cumsum(-1) - 1).clamp_min(0)

    def alone(self, row: int) -> Batch:
        """One row without its padding, with a KV cache as long as the whole batch has."""
        real = self.mask[row].bool()
        return Batch(self.ids[row : row + 1, real], self.mask[row : row + 1, real], max(self.room, self.ids.shape[1]))

    def of_row(self, output: torch.Tensor, layout: Layout, row: int) -> torch.Tensor:
        """What an output of this batch says of one row: as the output of `alone`, padding removed."""
        if layout == "tokens":
            before, own = int(self.mask[:row].sum()), int(self.mask[row].sum())
            return output[before : before + own]
        chosen = output[row : row + 1]
        return chosen[:, self.mask[row].bool()] if layout == "positions" else chosen


class Workload(Protocol):
    """A task: which class loads the model, what it is given, which outputs it gives back."""

    auto_class: ClassVar[str]
    """Name of the transformers Auto class."""
    logits: ClassVar[frozenset[str]]
    """Outputs whose last axis is a vocabulary (or classes): compared as distributions too."""
    layout: ClassVar[Mapping[str, Layout]]
    """Of each output."""

    def run(
        self,
        model: torch.nn.Module,
        call: Callable[..., Any],
        batch: Batch,
        inputs: Inputs,
        forced: torch.Tensor | None,
    ) -> dict[str, torch.Tensor]:
        """Named outputs on the host, padding removed.

        ``call`` is the model itself or its compiled form. ``forced`` holds the reference's tokens, int64
        ``[batch, steps]``, or None when the reference itself is made.
        """


SMILES = re.compile(
    r"(\[MASK\]|%\([0-9]{2}\)|\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|/|:|~|@|\?|>>?|\*|\$|%[0-9]{2}|[0-9])"
)
"""Tokens of reaction SMILES as the rxnfp and rxnmapper models were trained on them (their `tokenization.py`),
with the mask token besides."""


@dataclass(frozen=True)
class Rows:
    """Token ids, one sequence per batch row, and the id that pads."""

    ids: tuple[tuple[int, ...], ...]
    pad: int = 0


def make_batch(
    inputs: Inputs, shape: Shape | None, folder: Path, tokenizer: Callable[[], Any], *, repeat: bool
) -> Batch:
    """Token ids and mask from a row's inputs.

    With a shape, rows are repeated to its batch and cut or (``repeat``: by saying the text again; otherwise
    by padding) lengthened to its sequence. Raises UsageError for inputs that give no token.
    """
    rows = token_rows(inputs, folder, tokenizer)
    if shape is None:
        return padded_batch(rows)
    count, length = shape.batch, shape.sequence
    ids = [rows.ids[i % len(rows.ids)] for i in range(count)]
    return padded_batch(Rows(tuple(fit(row, length, repeat=repeat) for row in ids), rows.pad), width=length)


def token_rows(inputs: Inputs, folder: Path, tokenizer: Callable[[], Any]) -> Rows:
    """Token ids of a row's inputs. Raises UsageError for inputs that give no token."""
    ids, pad = _token_rows(inputs, folder, tokenizer)
    if not ids or not all(ids):
        raise UsageError("the inputs give no token; add texts or ids to the row in models.yaml")
    return Rows(tuple(tuple(row) for row in ids), pad)


def padded_batch(rows: Rows, *, width: int | None = None, left: bool = False, room: int = 0) -> Batch:
    """Rows side by side, padded on the right, or on the left, to the longest or to ``width``."""
    width = width or max(len(row) for row in rows.ids)
    ids = torch.full((len(rows.ids), width), rows.pad, dtype=torch.int64)
    mask = torch.zeros((len(rows.ids), width), dtype=torch.int64)
    for index, row in enumerate(rows.ids):
        place = slice(width - len(row), None) if left else slice(len(row))
        ids[index, place] = torch.tensor(row, dtype=torch.int64)
        mask[index, place] = 1
    return Batch(ids, mask, room)


def fit(row: Sequence[int], length: int, *, repeat: bool) -> tuple[int, ...]:
    """The row cut to a length, or said again up to it."""
    whole = tuple(row) * (-(-length // len(row)) if repeat else 1)
    return whole[:length]


def _token_rows(inputs: Inputs, folder: Path, tokenizer: Callable[[], Any]) -> tuple[list[list[int]], int]:
    """Token ids per row, and the padding id."""
    if inputs.ids:
        return [list(row) for row in inputs.ids], 0
    if not inputs.texts:
        return [], 0
    if inputs.tokenizer == "smiles":
        return _smiles_rows(inputs.texts, folder)
    auto = tokenizer()
    rows = [list(auto(text)["input_ids"]) for text in inputs.texts]
    pad = auto.pad_token_id if auto.pad_token_id is not None else 0
    return rows, pad


def _smiles_rows(texts: tuple[str, ...], folder: Path) -> tuple[list[list[int]], int]:
    path = folder / "vocab.txt"
    if not path.is_file():
        raise UsageError(f"tokenizer 'smiles' needs vocab.txt beside the weights; {path.parent.name} has none")
    vocabulary = {line: number for number, line in enumerate(path.read_text().splitlines())}
    unknown = vocabulary["[UNK]"]
    rows = [
        [
            vocabulary["[CLS]"],
            *(vocabulary.get(token, unknown) for token in SMILES.findall(text)),
            vocabulary["[SEP]"],
        ]
        for text in texts
    ]
    return rows, vocabulary.get("[PAD]", 0)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy on the CPU, in its own dtype."""
    return tensor.detach().cpu().contiguous().clone()
