"""Encoders with a head: masked language models and sequence classifiers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch

from harness.records import Inputs
from harness.workloads.base import Batch, Layout, to_host


class _EncoderLogits:
    """Output ``logits``, of every real token or of every row as the layout says."""

    logits: ClassVar[frozenset[str]] = frozenset({"logits"})
    layout: ClassVar[Mapping[str, Layout]]

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
        logits = to_host(call(input_ids=batch.ids.to(device), attention_mask=batch.mask.to(device)).logits)
        return {"logits": logits[batch.mask.bool()] if self.layout["logits"] == "tokens" else logits}


class MaskedLM(_EncoderLogits):
    """Output ``logits [real tokens, vocabulary]``."""

    auto_class: ClassVar[str] = "AutoModelForMaskedLM"
    layout: ClassVar[Mapping[str, Layout]] = {"logits": "tokens"}


class SequenceClassification(_EncoderLogits):
    """Output ``logits [batch, classes]``."""

    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"
    layout: ClassVar[Mapping[str, Layout]] = {"logits": "rows"}
