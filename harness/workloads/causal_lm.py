"""Causal language models: prefill, then teacher-forced decode steps through a static KV cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from transformers.cache_utils import StaticCache

from harness.errors import UsageError
from harness.records import Inputs
from harness.workloads.base import Batch, Layout, to_host

DECODE_STEPS = 8
"""Steps after the prefill where a row does not say: hf-adapters' token comparison takes four."""


class CausalLM:
    """Outputs ``logits.prefill [batch, sequence, vocabulary]``, ``logits.decode [batch, steps, vocabulary]``
    and, for the reference, ``forced_tokens [batch, steps]``.

    All observations run the same cache, so that like is compared with like (transformers#25420). The device's
    tokens are replaced by the reference's, so that one flipped token does not cascade. Rows of different
    length are padded on the left, so that the last position is the last token of each; a mask and position
    ids say so (transformers#29029).
    """

    auto_class: ClassVar[str] = "AutoModelForCausalLM"
    logits: ClassVar[frozenset[str]] = frozenset({"logits.prefill", "logits.decode"})
    layout: ClassVar[Mapping[str, Layout]] = {"logits.prefill": "positions", "logits.decode": "rows"}

    def run(
        self,
        model: torch.nn.Module,
        call: Callable[..., Any],
        batch: Batch,
        inputs: Inputs,
        forced: torch.Tensor | None,
    ) -> dict[str, torch.Tensor]:
        """See the class. Raises UsageError for rows that are padded elsewhere than on the left."""
        if not bool(batch.mask[:, -1].all()):
            raise UsageError(
                "causal-lm inputs of different length are not batched; give texts of one length, a shape, or "
                "the check left-padding"
            )
        steps = inputs.decode_steps if inputs.decode_steps is not None else DECODE_STEPS
        length = batch.ids.shape[1]
        generation = _Generation(model, call, batch, max(length, batch.room) + steps)
        prefill = generation.step(batch.ids, batch.positions)
        tokens: list[torch.Tensor] = []
        decoded: list[torch.Tensor] = []
        last = prefill[:, -1]
        for step in range(steps):
            tokens.append(last.float().argmax(-1) if forced is None else forced[:, step])
            last = generation.step(tokens[-1][:, None], batch.positions[:, -1:] + 1 + step)[:, -1]
            decoded.append(last)
        outputs = {"logits.prefill": prefill}
        if steps:
            outputs["logits.decode"] = torch.stack(decoded, 1)
            if forced is None:
                outputs["forced_tokens"] = torch.stack(tokens, 1)
        return outputs


class _Generation:
    """Calls of a model that share a static KV cache."""

    def __init__(self, model: torch.nn.Module, call: Callable[..., Any], batch: Batch, room: int) -> None:
        self._call = call
        self._device = next(model.parameters()).device
        self._fixed: dict[str, Any] = {"past_key_values": static_cache(model, len(batch.ids), room), "use_cache": True}
        if batch.padded:
            # As long as the cache from the first call on, so that every decode step has one shape and one plan.
            mask = torch.nn.functional.pad(batch.mask, (0, room - batch.mask.shape[1]), value=1)
            self._fixed["attention_mask"] = mask.to(self._device)

    def step(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The logits of these tokens, on the host."""
        placed = {"input_ids": ids.to(self._device), "position_ids": positions.to(self._device)}
        return to_host(self._call(**placed, **self._fixed).logits)


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
