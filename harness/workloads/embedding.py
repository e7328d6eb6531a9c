"""Embedding models: token embeddings and the pooled sentence embedding."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from harness.errors import UsageError
from harness.records import Inputs
from harness.workloads.base import Batch, Layout, to_host


class Embedding:
    """Outputs ``token_embeddings [real tokens, hidden]`` and ``pooled [batch, hidden]``.

    Pooling happens on the host in float32: the adapters for the device do the same (hf-adapters, MEAN pooling).
    """

    auto_class: ClassVar[str] = "AutoModel"
    logits: ClassVar[frozenset[str]] = frozenset()
    layout: ClassVar[Mapping[str, Layout]] = {"token_embeddings": "tokens", "pooled": "rows"}

    def run(
        self,
        model: torch.nn.Module,
        call: Callable[..., Any],
        batch: Batch,
        inputs: Inputs,
        forced: torch.Tensor | None,
    ) -> dict[str, torch.Tensor]:
        """See the class."""
        device = next(model.parameters()).device
        output = call(input_ids=batch.ids.to(device), attention_mask=batch.mask.to(device))
        hidden = to_host(output.last_hidden_state)
        return {
            "token_embeddings": hidden[batch.mask.bool()],
            "pooled": pool(hidden, batch.mask, inputs.pooling or "mean"),
        }


def pool(hidden: torch.Tensor, mask: torch.Tensor, method: str) -> torch.Tensor:
    """Sentence embedding ``[batch, hidden]`` in the dtype of ``hidden``; ``method`` is ``mean`` or ``cls``."""
    if method == "cls":
        return hidden[:, 0].clone()
    weights = mask.unsqueeze(-1).float()
    return ((hidden.float() * weights).sum(1) / weights.sum(1)).to(hidden.dtype)


def checkpoint_pooling(folder: Path) -> str:
    """The method that ``1_Pooling/config.json`` names (the sentence-transformers layout)."""
    path = folder / "1_Pooling" / "config.json"
    if not path.is_file():
        raise UsageError(
            f"pooling 'checkpoint': {folder.name} has no 1_Pooling/config.json; say 'mean' or 'cls' in the row"
        )
    modes = json.loads(path.read_text())
    if modes.get("pooling_mode_cls_token"):
        return "cls"
    if modes.get("pooling_mode_mean_tokens"):
        return "mean"
    chosen = [name for name, on in modes.items() if on is True]
    raise UsageError(f"{path.parent.name}/config.json: pooling {chosen} is not supported; say 'mean' or 'cls'")
