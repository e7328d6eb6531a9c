"""Checks become batches: which rows are asked how, and what is held against what."""

from __future__ import annotations

import pytest
import torch

from harness.errors import UsageError
from harness.records import Check, Inputs
from harness.workloads import Question, asks
from harness.workloads.base import Batch, Rows, padded_batch
from harness.workloads.causal_lm import CausalLM
from harness.workloads.embedding import Embedding

ONE = Rows(((1, 2, 3, 4, 5, 6),), 0)
TWO = Rows(((1, 2, 3), (4, 5)), 0)


def shown(found: Batch) -> tuple[list[list[int]], list[list[int]], int]:
    return found.ids.tolist(), found.mask.tolist(), found.room


def test_one_text_is_asked_in_three_rotations() -> None:
    batch, *alone = asks(Check.BATCH_INVARIANCE, ONE, causal=True)
    assert batch.batch.ids.tolist() == [[1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 1, 2], [5, 6, 1, 2, 3, 4]]
    assert [(ask.suffix, ask.row, ask.batch.ids.tolist()) for ask in alone] == [
        (" of row 0, alone", 0, [[1, 2, 3, 4, 5, 6]]),
        (" of row 1, alone", 1, [[3, 4, 5, 6, 1, 2]]),
        (" of row 2, alone", 2, [[5, 6, 1, 2, 3, 4]]),
    ]


def test_several_texts_are_cut_to_one_length_where_padding_has_no_place() -> None:
    assert asks(Check.BATCH_INVARIANCE, TWO, causal=True)[0].batch.ids.tolist() == [[1, 2], [4, 5]]
    batch, first, second = asks(Check.BATCH_INVARIANCE, TWO, causal=False)
    assert shown(batch.batch) == ([[1, 2, 3], [4, 5, 0]], [[1, 1, 1], [1, 1, 0]], 0)
    assert [shown(ask.batch)[0] for ask in (first, second)] == [[[1, 2, 3]], [[4, 5]]]


def test_block_boundaries_have_five_lengths_and_one_length_of_cache() -> None:
    found = asks(Check.BLOCK_BOUNDARIES, TWO, causal=True)
    assert [(ask.suffix, tuple(ask.batch.ids.shape), ask.batch.room) for ask in found] == [
        (" at 1 token", (2, 1), 128),
        (" at 63 tokens", (2, 63), 128),
        (" at 64 tokens", (2, 64), 128),
        (" at 65 tokens", (2, 65), 128),
        (" at 128 tokens", (2, 128), 128),
    ]
    assert found[3].batch.ids[1].tolist() == [4, 5] * 32 + [4]


def test_one_text_is_padded_on_the_left_at_three_lengths() -> None:
    batch, *alone = asks(Check.LEFT_PADDING, ONE, causal=True)
    assert batch.batch.ids.tolist() == [[1, 2, 3, 4, 5, 6], [0, 0, 1, 2, 3, 4], [0, 0, 0, 0, 1, 2]]
    assert batch.batch.mask.tolist() == [[1] * 6, [0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1]]
    assert batch.batch.positions.tolist() == [[0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3], [0, 0, 0, 0, 0, 1]]
    assert [shown(ask.batch) for ask in alone] == [
        ([[1, 2, 3, 4, 5, 6]], [[1] * 6], 6),
        ([[1, 2, 3, 4]], [[1] * 4], 6),
        ([[1, 2]], [[1] * 2], 6),
    ]


@pytest.mark.parametrize(
    ("check", "rows", "said"),
    [
        (Check.LEFT_PADDING, Rows(((1, 2), (3, 4))), "the rows all have one length, so nothing is padded"),
        (Check.LEFT_PADDING, Rows(((1,),)), "the rows all have one length"),
        (Check.BATCH_INVARIANCE, Rows(((1,),)), "a single row of one token is no batch"),
    ],
)
def test_rows_that_cannot_be_checked_so(check: Check, rows: Rows, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asks(check, rows, causal=True)


def test_a_row_of_an_output_has_no_padding_in_it() -> None:
    batch = Batch(torch.tensor([[7, 8, 9], [0, 5, 6]]), torch.tensor([[1, 1, 1], [0, 1, 1]]))
    positions, tokens = torch.arange(6).reshape(2, 3), torch.arange(5)
    assert batch.of_row(positions, "positions", 1).tolist() == [[4, 5]]
    assert batch.of_row(tokens, "tokens", 0).tolist() == [0, 1, 2]
    assert batch.of_row(tokens, "tokens", 1).tolist() == [3, 4]
    assert batch.of_row(positions, "rows", 1).tolist() == [[3, 4, 5]]


def test_masks_hold_for_outputs_with_padding_in_them() -> None:
    padded = Question(CausalLM(), asks(Check.LEFT_PADDING, ONE, causal=True), Inputs())
    names = ["logits.prefill", "logits.decode", "logits.prefill of row 1, alone"]
    assert {name: mask.tolist() for name, mask in padded.masks(names).items()} == {
        "logits.prefill": [[True] * 6, [False] * 2 + [True] * 4, [False] * 4 + [True] * 2]
    }
    assert padded.logits([*names, "pooled"]) == set(names)
    whole = Question(Embedding(), asks(Check.BATCH_INVARIANCE, TWO, causal=False), Inputs())
    assert whole.masks(["token_embeddings", "pooled"]) == {}


def test_the_candidate_is_held_against_itself_alone_on_the_control_s_scale() -> None:
    question = Question(Embedding(), asks(Check.BATCH_INVARIANCE, TWO, causal=False), Inputs())

    def side(batched: float, alone: float) -> dict[str, torch.Tensor]:
        outputs = {"token_embeddings": torch.full((5, 2), batched), "pooled": torch.full((2, 2), batched)}
        for row, length in ((0, 3), (1, 2)):
            outputs[f"token_embeddings of row {row}, alone"] = torch.full((length, 2), alone)
            outputs[f"pooled of row {row}, alone"] = torch.full((1, 2), alone)
        return outputs

    expected, found, scale = question.invariance(side(1.0, 1.0), side(1.5, 1.25), side(1.125, 9.0))
    name = "token_embeddings of row 1, batched against alone"
    assert sorted(expected) == sorted(
        f"{output} of row {row}, batched against alone" for output in ("token_embeddings", "pooled") for row in (0, 1)
    )
    assert [one[name].tolist() for one in (expected, found, scale)] == [
        [[1.25, 1.25], [1.25, 1.25]],
        [[1.5, 1.5], [1.5, 1.5]],
        [[1.375, 1.375], [1.375, 1.375]],
    ]


def test_what_is_taken_apart_leaves_out_the_rows_alone() -> None:
    question = Question(CausalLM(), asks(Check.LEFT_PADDING, ONE, causal=True), Inputs(decode_steps=8))
    short = question.shorter()
    assert (len(question.asks), len(short.asks), short.inputs.decode_steps) == (4, 1, 1)
    assert short.batch == question.batch


def test_padding_on_either_side() -> None:
    assert padded_batch(Rows(((1, 2), (3,)), 9), left=True).ids.tolist() == [[1, 2], [9, 3]]
    assert padded_batch(Rows(((1, 2), (3,)), 9), width=3).ids.tolist() == [[1, 2, 9], [3, 9, 9]]
