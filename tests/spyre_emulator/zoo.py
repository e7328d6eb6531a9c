"""Tiny, seeded Hugging Face models of many architectures, and one forward of each."""

import copy

import torch
import transformers

V = 512
DECODER = {
    "vocab_size": V,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": True,
}
ENCODER = {
    "vocab_size": V,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 130,
    "pad_token_id": 1,
}
VISION = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
    "num_channels": 3,
}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
CONFIGS = {
    "llama": ("causal", DECODER),
    "granite": ("causal", DECODER | {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0}),
    "mistral": ("causal", DECODER | {"head_dim": 16, "sliding_window": 32}),
    "qwen2": ("causal", DECODER),
    "qwen3": ("causal", DECODER | {"head_dim": 16}),
    "phi3": ("causal", DECODER | {"original_max_position_embeddings": 256}),
    "gemma2": ("causal", DECODER | {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 32}),
    "olmo2": ("causal", DECODER),
    "gpt2": ("causal", {"vocab_size": V, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, **SPECIAL}),
    "gpt_neox": (
        "causal",
        {k: v for k, v in DECODER.items() if k not in ("num_key_value_heads", "tie_word_embeddings")},
    ),
    "qwen3_moe": (
        "causal",
        DECODER | {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    ),
    "bert": ("masked", ENCODER),
    "roberta": ("masked", ENCODER),
    "albert": ("masked", ENCODER | {"embedding_size": 32, "pad_token_id": 0}),
    "distilbert": (
        "masked",
        {"vocab_size": V, "dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 130},
    ),
    "modernbert": (
        "masked",
        ENCODER
        | {"pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2}
        | {"global_attn_every_n_layers": 2, "local_attention": 32},
    ),
    "t5": (
        "seq2seq",
        {"vocab_size": V, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
        | {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1},
    ),
    "vit": ("image", VISION | {"num_labels": 10}),
    "dinov2": (
        "image",
        {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_ratio": 2, "image_size": 32}
        | {"patch_size": 8, "num_labels": 10},
    ),
}
CLASSES = {
    "causal": transformers.AutoModelForCausalLM,
    "masked": transformers.AutoModelForMaskedLM,
    "seq2seq": transformers.AutoModelForSeq2SeqLM,
    "image": transformers.AutoModelForImageClassification,
}


_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


def build(name: str, layers: int = 2) -> torch.nn.Module:
    kind, config = CONFIGS[name]
    config = config | {key: layers for key in _LAYERS if key in config}
    torch.manual_seed(0)
    return CLASSES[kind].from_config(transformers.AutoConfig.for_model(name, **config)).float().eval()


def inputs(name: str) -> dict[str, torch.Tensor]:
    kind = CONFIGS[name][0]
    generator = torch.Generator().manual_seed(0)
    if kind == "image":
        return {"pixel_values": torch.randn(1, 3, 32, 32, generator=generator)}
    ids = torch.randint(13, 500, (1, 12), generator=generator)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return given | {"decoder_input_ids": ids[:, :4]} if kind == "seq2seq" else given


def on_device(model: torch.nn.Module, dtype: torch.dtype = torch.float16) -> torch.nn.Module:
    return copy.deepcopy(model).to(dtype).to("spyre")


def forward(model: torch.nn.Module, given: dict[str, torch.Tensor]) -> torch.Tensor:
    parameter = next(model.parameters())
    moved = {k: (v.to(parameter.dtype) if v.is_floating_point() else v).to(parameter.device) for k, v in given.items()}
    with torch.no_grad():
        return model(**moved).logits.cpu()


def compiled(model: torch.nn.Module) -> torch.nn.Module:
    torch._dynamo.reset()
    return torch.compile(model)


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return torch.nn.functional.cosine_similarity(a.double().flatten(), b.double().flatten(), dim=0).item()
