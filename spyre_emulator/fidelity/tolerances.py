"""The tolerances that public projects allow Spyre, kept by operators and small models; differences of clean paths."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's convention

from spyre_emulator.fidelity.figures import Figure, bound, within

Tensor = torch.Tensor
TORCH_SPYRE = "torch-spyre: tests, compare_with_cpu and module yaml"
INFERENCE = "spyre-inference: tests"
FINDINGS = "hf-adapters:docs/spyre-numerical-findings.md"
DIFFERENCE_FACTOR = 3.0


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """N(0, 1) times `scale`, in float16."""
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).half()


def needed(call: Callable[..., Tensor], *inputs: Tensor) -> float:
    """The smallest tolerance, absolute and relative alike, that the device needs against float64."""
    device = call(*(x.to("spyre") for x in inputs)).cpu().double()
    reference = call(*(x.double() for x in inputs))
    return float(((device - reference).abs() / (1 + reference.abs())).max())


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding in the half-rotating form."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """A gated MLP."""
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """RMSNorm over the last dimension."""
    return F.rms_norm(x, x.shape[-1:], weight, 1e-5)


def _linear(out: int) -> tuple[Tensor, Tensor]:
    return random(16, 256), random(out, 256, seed=1, scale=1 / 16)


def _angles() -> tuple[Tensor, Tensor]:
    frequencies = 1.0 / 10000 ** (torch.arange(0, 64, 2) / 64)
    angles = torch.outer(torch.arange(16.0), frequencies).repeat(1, 2)
    return angles.cos().half(), angles.sin().half()


def _attention() -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    return functools.partial(F.scaled_dot_product_attention, is_causal=True), tuple(
        random(1, 4, 64, 64, seed=n) for n in range(3)
    )


def _mlp() -> tuple[Tensor, ...]:
    return random(16, 256), *(
        random(*s, seed=n, scale=1 / 16) for n, s in enumerate(((512, 256), (512, 256), (256, 512)))
    )


def operators() -> list[Figure]:
    """Operators within the tolerances of torch-spyre and spyre-inference."""
    attention, qkv = _attention()
    x = random(64, 256)
    cases: list[tuple[str, float, Callable[..., Tensor], tuple[Tensor, ...], str]] = [
        ("add", 0.005, torch.add, (x, random(64, 256, seed=1)), TORCH_SPYRE),
        ("mul", 0.005, torch.mul, (x, random(64, 256, seed=1)), TORCH_SPYRE),
        ("softmax", 0.005, functools.partial(torch.softmax, dim=-1), (x,), TORCH_SPYRE),
        ("silu", 0.005, F.silu, (x,), TORCH_SPYRE),
        ("gelu", 0.005, F.gelu, (x,), TORCH_SPYRE),
        ("sigmoid", 0.005, torch.sigmoid, (x,), TORCH_SPYRE),
        ("rsqrt", 0.005, torch.rsqrt, (x.abs() + 0.1,), TORCH_SPYRE),
        ("exp", 0.005, torch.exp, (x,), TORCH_SPYRE),
        ("mm", 0.1, torch.mm, (x, random(256, 64, seed=1)), TORCH_SPYRE),
        ("linear", 0.01, F.linear, _linear(64), INFERENCE),
        ("MLP", 0.01, swiglu, _mlp(), INFERENCE),
        ("RMSNorm", 0.01, rms_norm, (random(16, 256), random(256, seed=1)), INFERENCE),
        ("RoPE", 0.01, rotate, (random(4, 16, 64), *_angles()), INFERENCE),
        ("lm_head", 0.05, F.linear, _linear(1024), INFERENCE),
        ("attention", 0.2, attention, qkv, INFERENCE),
    ]
    return [
        bound(f"operator/{name}", "tolerance of an operator", name, "at most", limit,
              functools.partial(needed, call, *inputs), source)
        for name, limit, call, inputs, source in cases
    ]  # fmt: skip


def _fp8_round_trip() -> float:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    finite = codes[codes.float().isfinite()]
    return float((finite.to("spyre").cpu().float() - finite.float()).abs().max())


def _fp8_gemm() -> float:
    a, b = (random(*s, seed=n).to(torch.float8_e4m3fn) for n, s in enumerate(((32, 256), (64, 256))))
    one = torch.ones(())
    device = torch._scaled_mm(
        a.to("spyre"), b.to("spyre").t(), one.to("spyre"), one.to("spyre"), out_dtype=torch.float16
    )
    reference = a.double() @ b.double().t()
    return float(((device.cpu().double() - reference).abs() / (0.5 + 0.1 * reference.abs())).max())


def fp8() -> list[Figure]:
    """The FP8 tolerances of spyre-inference."""
    source = "spyre-inference:tests/test_fp8.py"
    return [
        bound("fp8/round-trip", "FP8", "largest error of a round trip", "at most", 0.0, _fp8_round_trip, source),
        bound("fp8/gemm", "FP8", "GEMM, share of atol 0.5 + rtol 0.1", "at most", 1.0, _fp8_gemm, source),
    ]


def _largest_difference(call: Callable[..., Tensor], *inputs: Tensor) -> float:
    return float((call(*(x.to("spyre") for x in inputs)).cpu().float() - call(*inputs).float()).abs().max())


def _append(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a, b], 2)


def _write(x: Tensor, row: Tensor) -> Tensor:
    result = x.clone()
    result[3:4] = row
    return result


def _heads(x: Tensor) -> Tensor:
    return x.view(1, 1, 16, 128).transpose(1, 2) * 1.0


def differences() -> list[Figure]:
    """Largest differences on clean paths, of inputs N(0, 1): the published inputs are not given."""
    write = functools.partial(_largest_difference, _write, random(8, 512), random(1, 512, seed=1))
    append = functools.partial(_largest_difference, _append, random(1, 8, 67, 128), random(1, 8, 1, 128, seed=1))
    heads = functools.partial(_largest_difference, _heads, random(1, 1, 2048))
    return [
        within("cat/clean", "cat", "after the fix", 0.0020, DIFFERENCE_FACTOR, append, "torch-spyre#1760"),
        within("overwrite/clean", "write of a row", "clean copy of a row", 0.002, DIFFERENCE_FACTOR, write,
               "torch-spyre#1765"),
        within("heads/1", "view + transpose", "sequence 1", 0.001, DIFFERENCE_FACTOR, heads, "torch-spyre#1783"),
    ]  # fmt: skip


def figures() -> list[Figure]:
    """Every figure of this part."""
    return [*operators(), *fp8(), *differences()]


def cosine(device: Any, reference: Any) -> float:
    """The smallest cosine over positions."""
    similarity = F.cosine_similarity(device.double().flatten(0, -2), reference.double().flatten(0, -2), dim=-1)
    return float(similarity.min())
