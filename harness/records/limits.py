"""Nouns of what a case may reach at most: errors and seconds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from harness.records.base import Record
from harness.records.sources import Reason

Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Tolerance(Record):
    """Limits of the verdict rule, for one task and dtype. `harness.verdict` gives them meaning."""

    error_ratio: Limit | None = None
    """Largest relative L2 error of the candidate, in units of the control's."""
    typical_ratio: Limit | None = None
    """The same vector by vector (a step's logits, a token's embedding): largest geometric mean."""
    worst_ratio: Limit | None = None
    """The same of the worst single vector, in units of the control's error there and throughout its row."""
    module_ratio: Limit | None = None
    """Largest typical ratio of a module that ran under the reference's inputs."""
    relative_l2: Limit | None = None
    """Absolute guard: largest relative L2 error, whatever the control does."""
    vector_l2: Limit | None = None
    """Absolute guard: largest relative L2 error of a single vector, such as the logits of one step."""
    cosine: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    """Absolute guard: smallest cosine similarity with the reference."""
    kl: Limit | None = None
    """Logits: largest mean Kullback-Leibler divergence from the reference, in nats."""
    token_disagreement: Share | None = None
    """Logits: largest share of positions whose top token differs and is no near tie."""
    reason: Reason | None = None
    """Why this row departs from the defaults. A pass that needed it is flagged ``relaxed``."""

    def over(self, default: Tolerance) -> Tolerance:
        """Return these limits with unset ones taken from ``default``; both reasons are kept."""
        unset = {name: value for name, value in default if getattr(self, name) is None}
        merged = self.model_copy(update=unset)
        if self.reason and default.reason and default.reason != self.reason:
            return merged.model_copy(update={"reason": f"{default.reason}; {self.reason}"})
        return merged

    @property
    def limits(self) -> tuple[str, ...]:
        """Names of the limits that are set."""
        return tuple(name for name, value in self if name != "reason" and value is not None)


class Timeouts(Record):
    """Wall-clock limits of one isolated process, in seconds per stage, for one thread per case."""

    resolve: Limit = 1800
    """Bringing the checkpoint, download included."""
    load: Limit = 300
    """Reading the weights into a model."""
    place: Limit = 300
    """Moving the model to the target."""
    compile: Limit = 900
    """``torch.compile`` and its first call."""
    run: Limit = 900
    """The forward passes."""
    compare: Limit = 300
    """Computing the numbers."""
