"""Encoders with a head: masked language models and sequence classifiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from harness.records import Inputs
from harness.workloads.base import Batch, to_host


class MaskedLM:
    """Output ``logits [real tokens, vocabulary]``."""

    auto_class: ClassVar[str] = "AutoModelForMaskedLM"
    logits: ClassVar[frozenset[str]] = frozenset({"logits"})

    def run(
        self,
        model: torch.nn.Module,
        call: Callable[..., Any],
        batch: Batch,
        inputs: Inputs,
        forced: torch.Tensor | None,
    ) -> dict[str, torch.Tensor]:
        """See the class."""
        return {"logits": _logits(model, call, batch)[batch.mask.bool()]}


class SequenceClassification:
    """Output ``logits [batch, classes]``."""

    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"
    logits: ClassVar[frozenset[str]] = frozenset({"logits"})

    def run(
        self,
        model: torch.nn.Module,
        call: Callable[..., Any],
        batch: Batch,
        inputs: Inputs,
        forced: torch.Tensor | None,
    ) -> dict[str, torch.Tensor]:
        """See the class."""
        return {"logits": _logits(model, call, batch)}


def _logits(model: torch.nn.Module, call: Callable[..., Any], batch: Batch) -> torch.Tensor:
    device = next(model.parameters()).device
    return to_host(call(input_ids=batch.ids.to(device), attention_mask=batch.mask.to(device)).logits)
