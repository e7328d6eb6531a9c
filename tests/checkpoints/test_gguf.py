"""GGUF to an ordinary checkpoint, on a tiny Llama that the gguf library writes."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from harness.checkpoints import load_model, load_tokenizer, resolve
from harness.checkpoints.gguf import convert, main
from harness.errors import CheckpointError
from harness.records import FolderSource

WIDTH, VOCABULARY = 32, 8
TENSORS = {
    "token_embd.weight": (VOCABULARY, WIDTH),
    "output_norm.weight": (WIDTH,),
    "blk.0.attn_norm.weight": (WIDTH,),
    "blk.0.ffn_norm.weight": (WIDTH,),
    **{f"blk.0.{name}.weight": (WIDTH, WIDTH) for name in ("attn_q", "attn_k", "attn_v", "attn_output")},
    **{f"blk.0.{name}.weight": (WIDTH, WIDTH) for name in ("ffn_gate", "ffn_up", "ffn_down")},
}


def write_gguf(path: Path) -> np.ndarray:
    """Write a Llama of one layer in Q4_1 and return what its ffn_up dequantises to."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(WIDTH // 2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<s>", "</s>", "a", "b", "c", "ab", "bc", "Ġ"])
    writer.add_token_merges(["a b", "b c"])
    writer.add_token_types([3, 3, 1, 1, 1, 1, 1, 1])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    draw = np.random.default_rng(0)
    quantised = gguf.GGMLQuantizationType.Q4_1
    for name, shape in TENSORS.items():
        values = draw.standard_normal(shape, np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
            continue
        packed = gguf.quants.quantize(values, quantised)
        writer.add_tensor(name, packed, raw_dtype=quantised)
        if name == "blk.0.ffn_up.weight":
            expected = gguf.quants.dequantize(packed, quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected


def test_a_converted_checkpoint_is_exact_and_ordinary(tmp_path: Path) -> None:
    expected = write_gguf(tmp_path / "tiny.gguf")
    main(tmp_path / "tiny.gguf", tmp_path / "out")
    checkpoint = resolve(FolderSource(folder="out"), cache=tmp_path / "cache", base=tmp_path)
    assert (checkpoint.format, checkpoint.stored_dtype, checkpoint.model_type) == ("safetensors", "float32", "llama")
    assert checkpoint.architecture == "LlamaForCausalLM"
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert np.array_equal(weights["model.layers.0.mlp.up_proj.weight"], expected)
    assert load_tokenizer(checkpoint)("abc")["input_ids"] == [5, 4]
    assert load_model(checkpoint, "AutoModelForCausalLM", "float16").notes == ()


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUX" + b"\0" * 100)
    with pytest.raises(CheckpointError, match=r"wheel:x: tiny\.gguf is no GGUF file") as caught:
        convert(tmp_path / "tiny.gguf", tmp_path / "out", "wheel:x", timeout=120)
    assert caught.value.kind == "invalid_checkpoint"


def test_a_conversion_that_takes_too_long(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match="did not end within 0 s") as caught:
        convert(tmp_path / "tiny.gguf", tmp_path / "out", "wheel:x", timeout=0.2)
    assert caught.value.kind == "unavailable"
