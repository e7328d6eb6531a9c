"""Small models of the published architectures: cosines, differences per layer, and figures that need a checkpoint."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

from spyre_emulator.fidelity.figures import Figure, bound, unavailable, within
from spyre_emulator.fidelity.tolerances import cosine

FINDINGS = "hf-adapters:docs/spyre-numerical-findings.md"
ADAPTERS = "hf-adapters:ARCHITECTURE.md, tests/spyre"
LAYER_FACTOR = 3.0
CHECKPOINT = (
    "needs the published checkpoint and its weights; `conformance run` measures it where they can be fetched "
    "(docs/fidelity.md, Figures that need a checkpoint)"
)
_SMALL = {
    "vocab_size": 256,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
_DECODER = {**_SMALL, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 128}


def _model(kind: str) -> Any:
    hf: Any = importlib.import_module("transformers")

    torch.manual_seed(0)
    if kind == "granite":
        return hf.GraniteForCausalLM(hf.GraniteConfig(**_DECODER))
    if kind == "gemma3":
        return hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**_DECODER))
    return hf.BertModel(hf.BertConfig(**_SMALL))


def _ids() -> torch.Tensor:
    return torch.arange(64)[None] * 37 % 255 + 1  # 0 is padding, whose embedding is zero


def _output(model: Any, ids: torch.Tensor) -> torch.Tensor:
    result = model(ids)
    found: torch.Tensor = result.logits if hasattr(result, "logits") else result.last_hidden_state
    return found.detach().cpu().float()


@torch.no_grad()
def model_cosine(kind: str, dtype: torch.dtype) -> float:
    """The smallest cosine over positions, device in `dtype` against CPU float32, of a small model."""
    model = _model(kind).eval()
    reference = _output(model, _ids())
    return cosine(_output(model.to(dtype).to("spyre"), _ids().to("spyre")), reference)


@torch.no_grad()
def layer_difference(kind: str) -> float:
    """Largest difference of one decoder layer of the published size, random weights, device against CPU in fp16."""
    hf: Any = importlib.import_module("transformers")

    torch.manual_seed(0)
    if kind == "qwen3":
        config = hf.Qwen3Config(
            hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
            num_hidden_layers=1, vocab_size=64,
        )  # fmt: skip
        model = hf.Qwen3Model(config)
    else:
        config = hf.LlamaConfig(
            hidden_size=3072, intermediate_size=8192, num_attention_heads=24, num_key_value_heads=8,
            num_hidden_layers=1, vocab_size=64,
        )  # fmt: skip
        model = hf.LlamaModel(config)
    layer, x = model.layers[0].half().eval(), torch.randn(1, 64, config.hidden_size).half()
    cos, sin = model.rotary_emb(x, torch.arange(64)[None])
    reference = layer(x, position_embeddings=(cos, sin))
    device = layer.to("spyre")(x.to("spyre"), position_embeddings=(cos.to("spyre"), sin.to("spyre")))
    return float((device.cpu().float() - reference.float()).abs().max())


def cosines() -> list[Figure]:
    """Published floors of cosines, kept by small random models of the same architecture."""
    cases = [
        ("granite", torch.float16, 0.99991, "granite-vision-4.1, cosine of logits per step"),
        ("gemma3", torch.bfloat16, 0.99964, "Gemma4-12B bf16, cosine of logits"),
        ("bert", torch.float16, 0.999, "embeddings, cosine per token"),
        ("granite", torch.float16, 0.99, "floor of hf-adapters on Spyre"),
    ]
    return [
        bound(f"cosine/{kind}/{floor}", "cosine to CPU float32, small random model", what, "at least", floor,
              functools.partial(model_cosine, kind, dtype), ADAPTERS)
        for kind, dtype, floor, what in cases
    ]  # fmt: skip


def layers() -> list[Figure]:
    """Largest difference of a layer with random weights in prefill: the middle of the published range."""
    topic = "one layer, random weights, prefill of 64"
    source = "hf-adapters test_block_cpu_vs_spyre (torch-spyre 7c6ef99)"
    scale = "the published run's input and initialisation are not given; N(0, 1) and the configuration's are used here"
    cases = (("qwen3", "Qwen3-0.6B, 0.01 to 0.02", 0.015), ("llama", "Llama-3.2-3B, 0.07 to 0.08", 0.075))
    return [
        within(
            f"layer/{kind}",
            topic,
            f"{name}, largest difference",
            published,
            LAYER_FACTOR,
            functools.partial(layer_difference, kind),
            source,
            explanation=f"{scale} ({source})",
        )
        for kind, name, published in cases
    ]


def with_checkpoints() -> list[Figure]:
    """Figures of whole checkpoints, listed and not measured here."""
    cases = {
        "qwen3-0.6b/prefill": ("logits, largest difference, prefill", "0.20"),
        "qwen3-0.6b/decode-1": ("logits, largest difference, first decode step", "0.18"),
        "qwen3-0.6b/softmax": ("only softmax on Spyre, equal tokens", "9/9"),
        "qwen3-0.6b/rms-norm": ("only RMSNorm on Spyre, equal tokens", "6/9"),
        "mmlu": ("MMLU on both sides; equal predictions", "22/50; 50/50"),
        "ministral3-vlm": ("top-1 tokens, Ministral3 VLM", "5/5"),
        "gemma4-12b": ("top-1 tokens, Gemma4-12B bf16", "5/5"),
        "embedding-gemma": ("cosine of pooled embeddings, EmbeddingGemma", ">= 0.99"),
        "gate-1865": ("3 of the top 5 tokens, difference of their logits below 1.0", "gate"),
    }
    return [
        unavailable(f"checkpoint/{name}", "whole checkpoint", quantity, published, FINDINGS, CHECKPOINT)
        for name, (quantity, published) in cases.items()
    ]


def figures() -> list[Figure]:
    """Every figure of this part."""
    return [*cosines(), *layers(), *with_checkpoints()]
