"""Texts become the same host tensors for every observation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.errors import UsageError
from harness.records import Inputs, Shape
from harness.workloads.base import SMILES, Batch, make_batch, to_host

FOLDER = Path("unused")


def no_tokenizer() -> None:
    raise AssertionError("ids need no tokenizer")


def batch(inputs: Inputs, shape: str | None = None, *, repeat: bool = False, folder: Path = FOLDER) -> Batch:
    return make_batch(inputs, Shape.parse(shape) if shape else None, folder, no_tokenizer, repeat=repeat)


def test_ids_are_padded_to_the_longest() -> None:
    made = batch(Inputs(ids=((5, 6, 7), (8,))))
    assert made.ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert made.mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert made.padded


@pytest.mark.parametrize(
    ("shape", "repeat", "ids", "mask"),
    [
        ("b1s2", False, [[5, 6]], [[1, 1]]),
        ("b3s4", False, [[5, 6, 7, 0], [8, 0, 0, 0], [5, 6, 7, 0]], [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 0]]),
        ("b2s5", True, [[5, 6, 7, 5, 6], [8, 8, 8, 8, 8]], [[1] * 5, [1] * 5]),
    ],
)
def test_a_shape_repeats_cuts_and_lengthens(
    shape: str, repeat: bool, ids: list[list[int]], mask: list[list[int]]
) -> None:
    made = batch(Inputs(ids=((5, 6, 7), (8,))), shape, repeat=repeat)
    assert (made.ids.tolist(), made.mask.tolist()) == (ids, mask)


def test_reaction_smiles_split_into_the_tokens_of_the_training_vocabulary() -> None:
    assert SMILES.findall("Brc1ccc[nH]1.[K+]>>C[MASK]Cl%12") == [
        *["Br", "c", "1", "c", "c", "c", "[nH]", "1", ".", "[K+]", ">>", "C", "[MASK]", "Cl", "%12"]
    ]


def test_smiles_ids_come_from_the_vocabulary_file(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nC\nO\n")
    made = batch(Inputs(texts=("CON", "C"), tokenizer="smiles"), folder=tmp_path)
    assert made.ids.tolist() == [[2, 4, 5, 1, 3], [2, 4, 3, 0, 0]]


def test_smiles_without_a_vocabulary_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs vocab\.txt beside the weights"):
        batch(Inputs(texts=("C",), tokenizer="smiles"), folder=tmp_path)


def test_a_tokenizer_without_a_padding_id_pads_with_zeros_that_the_mask_hides(tmp_path: Path) -> None:
    class Words:
        pad_token_id = None

        def __call__(self, text: str) -> dict[str, list[int]]:
            return {"input_ids": [len(word) for word in text.split()]}

    made = make_batch(Inputs(texts=("a bb ccc", "dd")), None, FOLDER, Words, repeat=False)
    assert (made.ids.tolist(), made.mask.tolist()) == ([[1, 2, 3], [2, 0, 0]], [[1, 1, 1], [1, 0, 0]])


def test_inputs_without_a_token_are_refused() -> None:
    with pytest.raises(UsageError, match="the inputs give no token"):
        batch(Inputs())


def test_host_copies_do_not_alias() -> None:
    source = torch.arange(6.0).reshape(2, 3).T
    copy = to_host(source)
    source += 1
    assert copy.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert copy.is_contiguous()
