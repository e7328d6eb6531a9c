from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AlbertConfig, AlbertForMaskedLM, LlamaConfig, LlamaForCausalLM

from harness.checkpoints import load_model, load_tokenizer, resolve
from harness.checkpoints.load import LoadedModel
from harness.errors import CheckpointError
from harness.records import Checkpoint, FolderSource

TINY = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
}
GATE = "model.layers.0.mlp.gate_proj.weight"


def tiny_llama(folder: Path, *, tied: bool = False, dtype: torch.dtype = torch.float32) -> Path:
    """Return FOLDER with a Llama of random weights, saved by transformers in DTYPE."""
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**TINY, tie_word_embeddings=tied)).to(dtype).save_pretrained(folder)
    return folder


def checkpoint_in(folder: Path, **allowed: str) -> Checkpoint:
    return resolve(FolderSource(folder=str(folder), **allowed), cache=folder.parent / "cache", base=Path("/"))


def load(folder: Path, dtype: str = "float32") -> LoadedModel:
    return load_model(checkpoint_in(folder), "AutoModelForCausalLM", dtype)


def without(folder: Path, *keys: str) -> None:
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items() if name not in keys}
    save_file(tensors, path, metadata={"format": "pt"})


def test_dtype_is_the_one_asked_for_whatever_is_stored(tmp_path: Path) -> None:
    # the library's default load dtype changed once
    folder = tiny_llama(tmp_path / "tiny", dtype=torch.float16)
    assert checkpoint_in(folder).stored_dtype == "float16"
    for dtype in ("float32", "float16", "bfloat16"):
        loaded = load(folder, dtype)
        assert {str(parameter.dtype) for parameter in loaded.model.parameters()} == {f"torch.{dtype}"}
        assert not loaded.model.training
        assert loaded.model.config._attn_implementation == "sdpa"
        assert loaded.notes == ()


def test_tied_weights_are_no_alarm(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "tiny", tied=True)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    model = load(folder).model
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_missing_layer_is_named(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "tiny")
    without(folder, GATE)
    with pytest.raises(CheckpointError, match=f"load incomplete: 1 tensors of .* would be random: {GATE}") as caught:
        load(folder)
    assert caught.value.kind == "invalid_checkpoint"


def test_an_untied_head_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "tiny", tied=False)
    without(folder, "lm_head.weight")
    with pytest.raises(CheckpointError, match=r"would be random: lm_head\.weight"):
        load(folder)


def test_another_shape_is_named(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "tiny")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 20}))
    with pytest.raises(CheckpointError, match=r"down_proj.weight is \(16, 24\) and should be \(16, 20\)"):
        load(folder)


def test_stored_tensors_without_a_place_are_noted(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "tiny")
    path = folder / "model.safetensors"
    save_file(load_file(path) | {"extra.weight": torch.zeros(1)}, path, metadata={"format": "pt"})
    assert load(folder).notes == ("1 stored tensors have no place in LlamaForCausalLM: extra.weight",)


def test_an_unknown_architecture(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "tiny")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "llama9"}))
    with pytest.raises(CheckpointError, match="model type 'llama9' is unknown") as caught:
        load(folder)
    assert caught.value.kind == "unsupported_architecture"
    (folder / "config.json").write_text(json.dumps({**config, "model_type": None}))
    with pytest.raises(CheckpointError, match="no 'model_type'") as caught:
        load(folder)
    assert caught.value.kind == "invalid_checkpoint"


def test_a_class_that_does_not_fit_the_architecture(tmp_path: Path) -> None:
    checkpoint = checkpoint_in(tiny_llama(tmp_path / "tiny"))
    with pytest.raises(CheckpointError, match="cannot be loaded: ValueError: Unrecognized configuration class"):
        load_model(checkpoint, "AutoModelForMaskedLM", "float32")


# ---- pickles


def test_of_two_formats_with_different_weights_safetensors_are_read_and_named(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "tiny")
    stored = load_file(folder / "model.safetensors")
    torch.save({name: tensor + 1 for name, tensor in stored.items()}, folder / "pytorch_model.bin")
    for allowed in ({}, {"allow_pickle": "published so"}):
        checkpoint = checkpoint_in(folder, **allowed)
        assert checkpoint.format == "safetensors"
        assert "pytorch_model.bin" not in [fact.name for fact in checkpoint.files]
        loaded = load_model(checkpoint, "AutoModelForCausalLM", "float32").model
        assert torch.equal(loaded.state_dict()[GATE], stored[GATE])


class Payload:
    """Runs when it is unpickled without ``weights_only``."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("pickle-was-executed"),))


def test_an_allowed_pickle_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    config = AlbertConfig(**TINY, embedding_size=8)
    model = AlbertForMaskedLM(config)
    config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    checkpoint = checkpoint_in(folder, allow_pickle="published so")
    loaded = load_model(checkpoint, "AutoModelForMaskedLM", "float32").model
    assert torch.equal(loaded.state_dict()["predictions.bias"], model.state_dict()["predictions.bias"])


def test_a_pickle_never_executes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_llama(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save({"model.norm.weight": Payload()}, folder / "pytorch_model.bin")
    checkpoint = checkpoint_in(folder, allow_pickle="published so")
    with pytest.raises(CheckpointError) as caught:
        load_model(checkpoint, "AutoModelForCausalLM", "float32")
    assert str(caught.value) == (
        "folder:tiny: cannot be loaded: UnpicklingError: holds more than weights, refused: "
        "Unsupported global: GLOBAL getattr was not an allowed global by default."
    )
    assert not Path("pickle-was-executed").exists()


def test_code_in_the_checkpoint_never_runs_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_llama(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    (folder / "modeling.py").write_text("import pathlib; pathlib.Path('code-was-executed').touch()")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "modeling.Config", "AutoModelForCausalLM": "modeling.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    assert type(load(folder).model).__name__ == "LlamaForCausalLM"
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own"}))
    with pytest.raises(CheckpointError, match="unknown to the installed transformers"):
        load(folder)
    assert not Path("code-was-executed").exists()


# ---- tokenizers


def test_the_tokenizer_comes_from_the_folder(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder = tiny_llama(tmp_path / "tiny")
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "hello": 1, "spyre": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]").save_pretrained(folder)
    assert load_tokenizer(checkpoint_in(folder))("hello spyre hi")["input_ids"] == [1, 2, 0]


def test_a_broken_tokenizer_is_the_checkpoints_fault(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "tiny")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CheckpointError, match="its tokenizer cannot be loaded") as caught:
            load_tokenizer(checkpoint_in(folder))
    assert caught.value.kind == "invalid_checkpoint"
