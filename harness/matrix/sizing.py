"""What a case will take, known before anything is fetched."""

from __future__ import annotations

from dataclasses import dataclass

from harness.records import Case, Check, Mode, Task


@dataclass(frozen=True)
class Estimate:
    """What a case is expected to take, in orders of magnitude."""

    memory_bytes: int | None
    """Host bytes of the largest process; None when the number of parameters is unknown."""
    seconds: float | None


@dataclass(frozen=True)
class Asked:
    """What a check asks beside the row's own outputs: counts for planning."""

    rows: int = 1
    """As many times the row's batch."""
    tokens: int | None = None
    prefills: int = 1
    """Shapes of the prefill, each compiled once."""
    decodes: int = 1
    """Shapes of the decode step."""


ASKED = {
    Check.BATCH_INVARIANCE: Asked(rows=6, prefills=2, decodes=2),  # three rows together, and each alone
    Check.BLOCK_BOUNDARIES: Asked(rows=5, tokens=1 + 63 + 64 + 65 + 128, prefills=5),
    Check.LEFT_PADDING: Asked(rows=5, prefills=4, decodes=2),  # the rows alone are shorter
}

PROCESS_BYTES = 450 << 20
"""Resident size of a process with torch and transformers loaded, before any weight: the peak of a candidate
with a model of 0.5 million parameters was 441 MB compiled, 398 MB eager."""
FLOAT32_BYTES = 4
VOCABULARY = 262_144
"""Largest vocabulary among the rows (Gemma): bounds the logits when planning knows no config."""
COMPILE_SECONDS = 30.0
"""A first ``torch.compile`` of a 135M model took 10 to 40 s per plan."""
MULTIPLICATIONS_PER_SECOND = 5e9
"""Multiply-adds per second of one thread, for planning only."""


def estimate(case: Case, parameters: int | None = None) -> Estimate:
    """Return the memory and time that a case is expected to take.

    Reference and candidate are processes of their own. The reference holds float32 weights; the emulated
    device holds a float32 shadow of each weight, so both need 4 bytes per parameter and activations beside.
    ``parameters`` overrides what the manifest says, once the checkpoint's metadata is known.
    """
    count = parameters or case.parameters
    if count is None:
        return Estimate(None, None)
    asked = ASKED.get(case.check, Asked())
    tokens = asked.tokens or asked.rows * _tokens(case)
    steps = asked.rows * (case.inputs.decode_steps or 0)
    logits = VOCABULARY if case.task in (Task.CAUSAL_LM, Task.MASKED_LM) else 1
    activations = FLOAT32_BYTES * tokens * (2 * logits + int(count**0.5))
    memory = PROCESS_BYTES + FLOAT32_BYTES * count + activations
    plans = asked.prefills + bool(steps) * asked.decodes
    compiling = COMPILE_SECONDS * plans if case.mode is Mode.COMPILED else 0.0
    # Reference, control and candidate each run the prefill and the steps.
    work = 3 * count * (tokens + steps * _batch(case)) / MULTIPLICATIONS_PER_SECOND
    return Estimate(memory, round(5.0 + compiling + work, 1))


def fits(case: Case, memory_bytes: int, parameters: int | None = None) -> str | None:
    """Return None when a case fits this memory or its size is unknown, else the reason why it does not."""
    needed = estimate(case, parameters).memory_bytes
    if needed is None or needed <= memory_bytes:
        return None
    count = parameters or case.parameters or 0
    return (
        f"needs about {needed / 1e9:.1f} GB of memory ({count / 1e9:.2f} billion parameters in float32), "
        f"{memory_bytes / 1e9:.1f} GB are available"
    )


def _batch(case: Case) -> int:
    return case.shape.batch if case.shape else max(1, len(case.inputs.texts or case.inputs.ids))


def _tokens(case: Case) -> int:
    """Return batch x sequence; a token is taken for three characters of text."""
    if case.shape:
        return case.shape.batch * case.shape.sequence
    longest = max((len(row) for row in case.inputs.ids), default=0)
    longest = max([longest, *(len(text) // 3 + 2 for text in case.inputs.texts)])
    return _batch(case) * max(1, longest)
