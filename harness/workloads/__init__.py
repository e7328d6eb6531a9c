"""What is asked of a model, one module per task."""

from __future__ import annotations

from harness.records import Task
from harness.workloads.base import Batch, Workload
from harness.workloads.causal_lm import CausalLM
from harness.workloads.embedding import Embedding
from harness.workloads.encoder_logits import MaskedLM, SequenceClassification
from harness.workloads.question import FORCED, Ask, Question, asks

__all__ = ["FORCED", "Ask", "Batch", "Question", "Workload", "asks", "get"]

_WORKLOADS: dict[Task, type[Workload]] = {
    Task.CAUSAL_LM: CausalLM,
    Task.EMBEDDING: Embedding,
    Task.MASKED_LM: MaskedLM,
    Task.SEQUENCE_CLASSIFICATION: SequenceClassification,
}


def get(task: Task) -> Workload:
    """The workload of a task."""
    return _WORKLOADS[task]()
