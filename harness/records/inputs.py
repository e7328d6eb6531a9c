"""What a model is asked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harness.records.base import Record

TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]


class Sampling(Record):
    """How tokens are drawn from logits: ``softmax(logits / temperature)``, with a seed.

    Top-k and top-p have no place here: they cut off a tail that a goodness of fit pools into one cell.
    """

    temperature: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 1.0
    """What the logits are divided by."""
    draws: Annotated[int, Field(ge=64, le=1 << 20)] = 1024
    """Tokens drawn at each position, independently."""
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    """Of the generator that draws them all."""


class Inputs(Record):
    """What a model is asked. Give texts or token ids, not both."""

    texts: tuple[str, ...] = ()
    """Texts, one per batch row; repeated in turn when the batch is larger. For masked-lm each text
    holds the literal token ``[MASK]``, which stands for the tokenizer's own mask."""
    ids: tuple[tuple[TokenId, ...], ...] = ()
    """Token ids, one sequence per batch row."""
    tokenizer: Literal["auto", "smiles"] = "auto"
    """``auto``: the checkpoint's own. ``smiles``: ``vocab.txt`` split by the reaction SMILES pattern."""
    pooling: Literal["mean", "cls", "checkpoint"] | None = None
    """Embedding only: pool as named, or as the checkpoint's ``1_Pooling/config.json`` says."""
    decode_steps: Annotated[int, Field(ge=0, le=4096)] | None = None
    """Causal language models only: teacher-forced steps through the KV cache after the prefill."""
    sampling: Sampling | None = None
    """For the check ``sampling``: how tokens are drawn."""

    @model_validator(mode="after")
    def _one_form(self) -> Inputs:
        if self.texts and self.ids:
            raise ValueError("give 'texts' or 'ids', not both")
        if not all(self.ids) or not all(text.strip() for text in self.texts):
            raise ValueError("an empty text or sequence asks nothing; remove it or fill it in")
        return self

    def over(self, default: Inputs) -> Inputs:
        """Return these inputs with what they leave open taken from ``default``."""
        own = self if self.texts or self.ids else default
        return Inputs(
            texts=own.texts,
            ids=own.ids,
            tokenizer=own.tokenizer,
            pooling=self.pooling or default.pooling,
            decode_steps=default.decode_steps if self.decode_steps is None else self.decode_steps,
            sampling=self.sampling or default.sampling,
        )
