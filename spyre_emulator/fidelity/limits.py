"""Published limits: which sizes compile and which do not."""

from __future__ import annotations

import functools

import torch

from spyre_emulator import division, private
from spyre_emulator.constraints import MAX_TOPK, failed_span
from spyre_emulator.cores import SPAN_LIMIT
from spyre_emulator.fidelity.figures import Figure

ADAPTERS = "hf-adapters:hf_adapters `pad_lm_head`"
aten = private.aten
HALF = torch.float16


def _lm_head(sticks: int, hidden: int) -> str:
    """``fails`` or ``works`` for a head of `sticks` sticks of vocabulary."""
    columns = sticks * 64
    return "fails" if failed_span(aten.mm.default, (((1, hidden), HALF), ((hidden, columns), HALF))) else "works"


def _exact(identity: str, quantity: str, published: float, value: float, source: str) -> Figure:
    return Figure(
        id=identity, topic="limit", quantity=quantity, published=published, origin="by construction", source=source,
        measure=lambda: value,
    )  # fmt: skip


def figures() -> list[Figure]:
    """Every figure of this part."""
    heads = [
        Figure(
            id=f"limit/lm-head/{sticks}", topic="limit", origin="predicted", source=ADAPTERS, published=published,
            quantity=f"lm_head of {sticks} sticks ({note}), hidden 4096",
            measure=functools.partial(_lm_head, sticks, 4096),
        )
        for sticks, note, published in ((2374, "vocabulary 151936", "fails"), (2375, "padded", "works"))
    ]  # fmt: skip
    return [
        *heads,
        _exact("limit/span", "span per core, MB", 256.0, float(SPAN_LIMIT >> 20), ADAPTERS),
        _exact("limit/lx", "scratchpad per core, MB", 2.0, float(division.LX_BYTES >> 20), "torch-spyre: LX planning"),
        _exact("limit/lx-front-end", "front end's share of it, KB", 1638.4, division.LX_FRONT_END / 1024,
               "torch-spyre: DXP_LX_FRAC_AVAIL"),
        _exact("limit/topk", "largest k of topk", 128.0, float(MAX_TOPK), "torch-spyre: `topk with k=.. (max k=128)`"),
    ]  # fmt: skip
