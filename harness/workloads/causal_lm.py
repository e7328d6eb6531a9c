"""Causal language models: prefill, then teacher-forced decode steps through a static KV cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from transformers.cache_utils import StaticCache

from harness.errors import UsageError
from harness.records import Inputs
from harness.workloads.base import Batch, to_host

DECODE_STEPS = 8
"""Steps after the prefill where a row does not say: hf-adapters' token comparison takes four."""


class CausalLM:
    """Outputs ``logits.prefill [batch, sequence, vocabulary]``, ``logits.decode [batch, steps, vocabulary]``
    and, for the reference, ``forced_tokens [batch, steps]``.

    All observations run the same cache, so that like is compared with like (transformers#25420). The device's
    tokens are replaced by the reference's, so that one flipped token does not cascade.
    """

    auto_class: ClassVar[str] = "AutoModelForCausalLM"
    logits: ClassVar[frozenset[str]] = frozenset({"logits.prefill", "logits.decode"})

    def run(
        self,
        model: torch.nn.Module,
        call: Callable[..., Any],
        batch: Batch,
        inputs: Inputs,
        forced: torch.Tensor | None,
    ) -> dict[str, torch.Tensor]:
        """See the class."""
        if batch.padded:
            raise UsageError(
                "causal-lm inputs of different length are not batched; give texts of one length or a shape"
            )
        steps = inputs.decode_steps if inputs.decode_steps is not None else DECODE_STEPS
        device = next(model.parameters()).device
        rows, length = batch.ids.shape
        cache = static_cache(model, rows, length + steps)
        output = _step(call, batch.ids.to(device), torch.arange(length).expand(rows, -1).to(device), cache)
        prefill = to_host(output)
        tokens: list[torch.Tensor] = []
        decoded: list[torch.Tensor] = []
        last = prefill[:, -1]
        for step in range(steps):
            tokens.append(last.float().argmax(-1) if forced is None else forced[:, step])
            position = torch.full((rows, 1), length + step)
            output = _step(call, tokens[-1][:, None].to(device), position.to(device), cache)
            last = to_host(output)[:, -1]
            decoded.append(last)
        outputs = {"logits.prefill": prefill}
        if steps:
            outputs["logits.decode"] = torch.stack(decoded, 1)
            if forced is None:
                outputs["forced_tokens"] = torch.stack(tokens, 1)
        return outputs


def _step(call: Callable[..., Any], ids: torch.Tensor, positions: torch.Tensor, cache: StaticCache) -> torch.Tensor:
    output: torch.Tensor = call(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True).logits
    return output


def static_cache(model: torch.nn.Module, rows: int, length: int) -> StaticCache:
    """A cache allocated up front, as a compiled prefill needs it."""
    config: Any = model.config
    text = config.get_text_config(decoder=True)
    cache = StaticCache(config=config, max_cache_len=length)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    parameter = next(model.parameters())
    cache.early_initialization(rows, heads, width, parameter.dtype, parameter.device)
    return cache
