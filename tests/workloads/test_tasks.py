"""Each task on a tiny model: names, shapes and meaning of the outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
)

from harness import workloads
from harness.errors import UsageError
from harness.records import Inputs, Task
from harness.workloads.base import Batch
from harness.workloads.embedding import checkpoint_pooling, pool

DECODER = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
ENCODER = {name: value for name, value in DECODER.items() if name not in ("num_key_value_heads",)}
PADDED = Batch(torch.tensor([[5, 6, 7], [8, 0, 0]]), torch.tensor([[1, 1, 1], [1, 0, 0]]))
FULL = Batch(torch.tensor([[5, 6, 7, 9], [8, 4, 3, 10]]), torch.ones(2, 4, dtype=torch.int64))


def build(auto: type, kind: str, **more: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return auto.from_config(AutoConfig.for_model(kind, **{**more})).eval()  # type: ignore[attr-defined,no-any-return]


def run(task: Task, model: torch.nn.Module, batch: Batch, inputs: Inputs | None = None, forced=None):
    with torch.no_grad():
        return workloads.get(task).run(model, model, batch, inputs or Inputs(), forced)


def test_decoding_through_the_cache_equals_one_long_forward() -> None:
    model = build(AutoModelForCausalLM, "llama", **DECODER)
    outputs = run(Task.CAUSAL_LM, model, FULL, Inputs(decode_steps=3))
    assert {name: tuple(tensor.shape) for name, tensor in outputs.items()} == {
        "logits.prefill": (2, 4, 64),
        "logits.decode": (2, 3, 64),
        "forced_tokens": (2, 3),
    }
    whole = torch.cat([FULL.ids, outputs["forced_tokens"]], 1)
    with torch.no_grad():
        expected = model(whole).logits
    torch.testing.assert_close(outputs["logits.prefill"], expected[:, :4])
    torch.testing.assert_close(outputs["logits.decode"], expected[:, 4:])


def test_forced_tokens_are_fed_whatever_the_model_would_say() -> None:
    model = build(AutoModelForCausalLM, "llama", **DECODER)
    forced = torch.tensor([[11, 12], [13, 14]])
    outputs = run(Task.CAUSAL_LM, model, FULL, Inputs(decode_steps=2), forced)
    with torch.no_grad():
        expected = model(torch.cat([FULL.ids, forced], 1)).logits
    torch.testing.assert_close(outputs["logits.decode"], expected[:, 4:])
    assert "forced_tokens" not in outputs


def test_no_decode_steps() -> None:
    model = build(AutoModelForCausalLM, "llama", **DECODER)
    assert list(run(Task.CAUSAL_LM, model, FULL, Inputs(decode_steps=0))) == ["logits.prefill"]


def test_causal_lm_refuses_padding() -> None:
    model = build(AutoModelForCausalLM, "llama", **DECODER)
    with pytest.raises(UsageError, match="give texts of one length, a shape, or the check left-padding"):
        run(Task.CAUSAL_LM, model, PADDED)


def test_rows_padded_on_the_left_answer_as_they_do_alone() -> None:
    model = build(AutoModelForCausalLM, "llama", **DECODER)
    batch = Batch(torch.tensor([[5, 6, 7, 9], [0, 0, 8, 4]]), torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]]))
    together = run(Task.CAUSAL_LM, model, batch, Inputs(decode_steps=3))
    for row, length in ((0, 4), (1, 2)):
        alone = run(Task.CAUSAL_LM, model, batch.alone(row), Inputs(decode_steps=3))
        assert alone["logits.prefill"].shape == (1, length, 64)
        for name, layout in workloads.get(Task.CAUSAL_LM).layout.items():
            torch.testing.assert_close(batch.of_row(together[name], layout, row), alone[name])


@pytest.mark.parametrize("task", [Task.CAUSAL_LM, Task.EMBEDDING, Task.MASKED_LM, Task.SEQUENCE_CLASSIFICATION])
def test_junk_under_the_padding_changes_nothing_that_is_given_back(task: Task) -> None:
    causal = task is Task.CAUSAL_LM
    sizes = DECODER if causal else ENCODER
    auto = {
        Task.CAUSAL_LM: AutoModelForCausalLM,
        Task.EMBEDDING: AutoModel,
        Task.MASKED_LM: AutoModelForMaskedLM,
        Task.SEQUENCE_CLASSIFICATION: AutoModelForSequenceClassification,
    }[task]
    model = build(auto, "llama" if causal else "bert", **sizes)
    mask = PADDED.mask.flip(-1) if causal else PADDED.mask
    clean, junk = (torch.where(mask.bool(), torch.tensor([[5, 6, 7], [8, 8, 8]]), fill) for fill in (0, 33))
    forced = torch.tensor([[3, 4], [5, 6]])
    results = [run(task, model, Batch(ids, mask), Inputs(decode_steps=2), forced) for ids in (clean, junk)]
    kept = {"logits.prefill": mask.bool()}
    for name in results[0]:
        first, second = (result[name][kept[name]] if name in kept else result[name] for result in results)
        torch.testing.assert_close(first, second)


def test_a_longer_cache_changes_nothing() -> None:
    model = build(AutoModelForCausalLM, "llama", **DECODER)
    roomy = Batch(FULL.ids, FULL.mask, room=40)
    torch.testing.assert_close(
        run(Task.CAUSAL_LM, model, roomy, Inputs(decode_steps=2)),
        run(Task.CAUSAL_LM, model, FULL, Inputs(decode_steps=2)),
    )


def test_embedding_leaves_padding_out() -> None:
    model = build(AutoModel, "bert", **ENCODER)
    outputs = run(Task.EMBEDDING, model, PADDED, Inputs(pooling="mean"))
    assert {name: tuple(tensor.shape) for name, tensor in outputs.items()} == {
        "token_embeddings": (4, 32),
        "pooled": (2, 32),
    }
    torch.testing.assert_close(outputs["pooled"][1], outputs["token_embeddings"][3])


def test_encoder_logits() -> None:
    masked = run(Task.MASKED_LM, build(AutoModelForMaskedLM, "bert", **ENCODER), PADDED)
    assert {name: tuple(tensor.shape) for name, tensor in masked.items()} == {"logits": (4, 64)}
    classes = build(AutoModelForSequenceClassification, "bert", **ENCODER, num_labels=7)
    assert tuple(run(Task.SEQUENCE_CLASSIFICATION, classes, PADDED)["logits"].shape) == (2, 7)


def test_pooling() -> None:
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [90.0, 90.0]]])
    mask = torch.tensor([[1, 1, 0]])
    assert pool(hidden, mask, "mean").tolist() == [[2.0, 3.0]]
    assert pool(hidden, mask, "cls").tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("modes", "expected"),
    [({"pooling_mode_cls_token": True}, "cls"), ({"pooling_mode_mean_tokens": True}, "mean")],
)
def test_pooling_that_the_checkpoint_names(tmp_path: Path, modes: dict[str, bool], expected: str) -> None:
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **modes}))
    assert checkpoint_pooling(tmp_path) == expected


def test_pooling_that_is_not_there_or_not_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no 1_Pooling/config\.json; say 'mean' or 'cls'"):
        checkpoint_pooling(tmp_path)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(UsageError, match="pooling_mode_max_tokens"):
        checkpoint_pooling(tmp_path)
