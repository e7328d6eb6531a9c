"""Sums, means, norms and softmax against the published errors."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's convention

from spyre_emulator import settings
from spyre_emulator.faults import faults
from spyre_emulator.fidelity.figures import Figure, within

Tensor = torch.Tensor
FINDINGS = "hf-adapters:docs/spyre-numerical-findings.md"
MASKED = 3e-5
"""exp(-Inf) that gives the published leak of about 2e-5 per masked position."""
SUM_FACTOR, NORM_FACTOR, LEAK_FACTOR, MAXIMUM_FACTOR = 1.05, 1.5, 2.0, 3.0


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@functools.cache
def _published_input(dtype: torch.dtype) -> Tensor:
    """randn(4096) * 1e-3 with seed 42, as torch-spyre#2400 makes it."""
    return (torch.randn(4096, generator=_seeded(42)) * 1e-3).to(dtype)


def _on_device(dtype: torch.dtype) -> Tensor:
    return _published_input(dtype).to("spyre")


def _truth() -> float:
    return float(f"{float(_published_input(torch.float32).double().square().mean()):.5g}")


def _sum() -> float:
    x = _on_device(torch.float16)
    return float((x * x).sum())


def _host_sum() -> float:
    x = _published_input(torch.float16)
    return float((x * x).sum())


def _mean(dtype: torch.dtype) -> float:
    x = _on_device(dtype)
    return float((x * x).mean())


def _faulty_mean() -> float:
    with faults("F17"):
        return _mean(torch.float16)


def _sum_over_count() -> float:
    x = _on_device(torch.float16)
    return float((x * x).sum() / 4096)


def sums() -> list[Figure]:
    """torch-spyre#2400: sums and means of 4096 small squares."""
    topic, source = "sum of 4096 squares", "torch-spyre#2400"
    return [
        Figure(
            id="sum/input", topic=topic, quantity="true mean, which the input has to reproduce", published=9.9203e-07,
            origin="by construction", source=source, measure=_truth,
        ),
        within("sum/host", topic, "sum in fp16 on the CPU", 4.0588e-03, SUM_FACTOR, _host_sum, source),
        within("sum/device", topic, "sum on the device", 4.0741e-03, SUM_FACTOR, _sum, source),
        within(
            "sum/mean-fp16", topic, "fp16 mean, with fault F17", 1.8120e-05, NORM_FACTOR, _faulty_mean, source,
            origin="fitted",
        ),
        within(
            "sum/mean-bf16", topic, "bf16 mean", 6.1467e-07, NORM_FACTOR,
            functools.partial(_mean, torch.bfloat16), source,
        ),
        within(
            "sum/over-count", topic, "sum / 4096 in fp16", 2.6226e-06, NORM_FACTOR, _sum_over_count, source,
            explanation="an open defect below the smallest normal fp16 number (torch-spyre#2400, torch-spyre#4689)",
        ),
    ]  # fmt: skip


def _rms_input(hidden: int) -> tuple[Tensor, Tensor]:
    """128 tokens of N(0, 1) / sqrt(hidden), and weights near 1: the published run used a model's own."""
    generator = _seeded(0)
    x = (torch.randn(128, hidden, generator=generator) / hidden**0.5).half()
    return x, (1 + 0.1 * torch.randn(hidden, generator=generator)).half()


def _relative(result: Tensor, reference: Tensor) -> float:
    return float(((result.double() - reference).abs() / reference.abs().clamp_min(1e-12)).mean())


def _rms_reference(hidden: int, eps: float) -> Tensor:
    x, weight = _rms_input(hidden)
    return F.rms_norm(x.double(), (hidden,), weight.double(), eps)


def _rms_on_device(hidden: int, eps: float) -> float:
    x, weight = _rms_input(hidden)
    result = F.rms_norm(x.to("spyre"), (hidden,), weight.to("spyre"), eps).cpu()
    return _relative(result, _rms_reference(hidden, eps))


def _rms_in_fp16(hidden: int, eps: float) -> float:
    """The fp16 column: squares added one after the other in fp16."""
    x, weight = _rms_input(hidden)
    running = torch.zeros(x.shape[0], dtype=torch.float16)
    for column in (x * x).unbind(1):
        running = running + column
    scale = torch.rsqrt(running[:, None] / hidden + eps)
    return _relative(x * scale * weight, _rms_reference(hidden, eps))


def norms() -> list[Figure]:
    """Mean relative errors of RMSNorm, and maximal differences of norms."""
    rows = []
    for model, hidden, eps, half, device in (
        ("Granite-3.3-2B", 2048, 1e-5, 0.0148, 0.0251),
        ("Qwen3-0.6B", 1024, 1e-6, 0.0066, 0.0173),
    ):
        topic, width = "RMSNorm, mean relative error", f"hidden {hidden} ({model}), synthetic weights"
        call = functools.partial(_rms_on_device, hidden, eps)
        rows.append(
            within(f"rms/{hidden}/dl16", topic, f"DL16, {width}", device, NORM_FACTOR, call, FINDINGS, origin="fitted")
        )
        call = functools.partial(_rms_in_fp16, hidden, eps)
        rows.append(within(f"rms/{hidden}/fp16", topic, f"fp16 in turn, {width}", half, NORM_FACTOR, call, FINDINGS))
    source = "torch-spyre#1781"
    cases = (("whole", (1, 16, 128, 128), 0.0312, 0.0015), ("token", (1, 16, 1, 128), 0.0156, 0.0017))
    for name, shape, largest, mean in cases:
        topic = f"RMSNorm of a contiguous input, {name}, {list(shape)} (published shape not given)"
        for kind, published in (("largest", largest), ("mean", mean)):
            call = functools.partial(_rms_difference, shape, kind == "largest")
            rows.append(
                within(f"rms/{name}/{kind}", topic, f"{kind} difference", published, MAXIMUM_FACTOR, call, source)
            )
    quantity = "affine path, width 4096, largest difference"
    rows.append(
        within(
            "layer-norm/4096", "LayerNorm", quantity, 0.008, MAXIMUM_FACTOR, _layer_norm_difference, "torch-spyre#1980"
        )
    )
    return rows


def _rms_difference(shape: tuple[int, ...], largest: bool) -> float:
    x = torch.randn(shape, generator=_seeded(0)).half()
    weight = torch.ones(shape[-1], dtype=torch.float16)
    result = F.rms_norm(x.to("spyre"), shape[-1:], weight.to("spyre"), 1e-6).cpu()
    difference = (result.double() - F.rms_norm(x.double(), shape[-1:], weight.double(), 1e-6)).abs()
    return float(difference.max() if largest else difference.mean())


def _layer_norm_difference() -> float:
    x = torch.randn(64, 4096, generator=_seeded(0)).half()
    weight, bias = torch.ones(4096).half(), torch.zeros(4096).half()
    result = F.layer_norm(x.to("spyre"), (4096,), weight.to("spyre"), bias.to("spyre")).cpu()
    reference = F.layer_norm(x.double(), (4096,))
    return float((result.double() - reference).abs().max())


@functools.cache
def _masked_positions() -> Tensor:
    """Softmax weights at 62 masked of 64 positions, for 256 rows of scores."""
    scores = torch.randn(256, 64, generator=_seeded(0)).half()
    scores[:, 2:] = -torch.inf
    with settings.using(masked_exponential=MASKED):
        return torch.softmax(scores.to("spyre"), -1).cpu()[:, 2:].float()


def softmax() -> list[Figure]:
    """What masked positions leak."""
    topic = f"softmax leak, masked_exponential {MASKED:g}"
    cases: dict[str, tuple[str, float, Callable[[], float]]] = {
        "position": ("weight of a masked position", 2e-5, lambda: float(_masked_positions().mean())),
        "largest": ("largest weight of a masked position", 4.9e-5, lambda: float(_masked_positions().max())),
        "mass": ("share of 62 masked positions", 0.0013, lambda: float(_masked_positions().sum(-1).mean())),
    }
    host = Figure(
        id="softmax/host", topic=topic, quantity="weight of a masked position on the CPU", published=0.0,
        origin="by construction", source=FINDINGS, measure=_leak_of_host,
    )  # fmt: skip
    return [
        within(f"softmax/{name}", topic, quantity, published, LEAK_FACTOR, call, FINDINGS, origin="fitted")
        for name, (quantity, published, call) in cases.items()
    ] + [host]


def _leak_of_host() -> float:
    return float(torch.softmax(torch.tensor([0.0, -torch.inf], dtype=torch.float16), -1)[1])


def figures() -> list[Figure]:
    """Every figure of this part."""
    return [*sums(), *norms(), *softmax()]
