"""What every workload can do, and how texts become batches."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from harness.errors import UsageError
from harness.records import Inputs, Shape


@dataclass(frozen=True)
class Batch:
    """Host tensors that reference, control and candidate all get, bit for bit."""

    ids: torch.Tensor
    """Token ids, int64 ``[batch, sequence]``."""
    mask: torch.Tensor
    """1 for real tokens, int64 ``[batch, sequence]``."""

    @property
    def padded(self) -> bool:
        """Whether any position is padding."""
        return not bool(self.mask.all())


class Workload(Protocol):
    """A task: which class loads the model, what it is given, which outputs it gives back."""

    auto_class: ClassVar[str]
    """Name of the transformers Auto class."""
    logits: ClassVar[frozenset[str]]
    """Outputs whose last axis is a vocabulary (or classes): compared as distributions too."""

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


def make_batch(
    inputs: Inputs, shape: Shape | None, folder: Path, tokenizer: Callable[[], Any], *, repeat: bool
) -> Batch:
    """Token ids and mask from a row's inputs.

    With a shape, rows are repeated to its batch and cut or (``repeat``: by saying the text again; otherwise
    by padding) lengthened to its sequence. Raises UsageError for inputs that give no token.
    """
    rows, pad = _token_rows(inputs, folder, tokenizer)
    if not rows or not all(rows):
        raise UsageError("the inputs give no token; add texts or ids to the row in models.yaml")
    if shape is not None:
        rows = [_fit(rows[i % len(rows)], shape.sequence, repeat) for i in range(shape.batch)]
    width = shape.sequence if shape else max(len(row) for row in rows)
    ids = torch.full((len(rows), width), pad, dtype=torch.int64)
    mask = torch.zeros((len(rows), width), dtype=torch.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row, dtype=torch.int64)
        mask[index, : len(row)] = 1
    return Batch(ids, mask)


def _fit(row: list[int], length: int, repeat: bool) -> list[int]:
    if repeat:
        row = row * -(-length // len(row))
    return row[:length]


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
