"""Device programs: how the device computes composite operators, on shadows, rounding where it rounds.

Each takes ``half=``: whether it works on DLFloat16 numbers. The steps follow torch-spyre's
torch_spyre/_inductor/decompositions.py; a single device function (gelufwd, silu, sigmoid, ...) rounds once, since the
error of its approximation is not public.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from spyre_emulator import settings
from spyre_emulator.accumulation import OperatorClass, total
from spyre_emulator.numerics import LARGEST, decode, round_, round_scalar

Tensor = torch.Tensor


def half_or_exact(x: Tensor, half: bool) -> Tensor:
    """`x`, rounded in place when `half`."""
    return round_(x) if half else x


def exponential(x: Tensor) -> Tensor:
    """Rounded exp of DLFloat16 numbers, with the device's value for masked positions."""
    result = round_(torch.exp(x))
    masked = settings.current.masked_exponential
    if masked:
        result.masked_fill_(x == -torch.inf, round_scalar(masked))
    return result


def _in_order(x: Tensor) -> Tensor:
    """`x` as PyTorch's softmax and norms lay their results out: channels last where it was so, contiguous otherwise.

    Later views rely on it, in plans above all, which were traced with these strides.
    """
    channels_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return x if channels_last else x.contiguous()


def _narrowed(x: Tensor) -> Tensor:
    """Float32 `x` as DLFloat16, finite numbers saturated.

    Masks of float32 models hold its smallest number: taken for -Inf it makes NaN of rows that are masked as a whole.
    """
    return round_(torch.where(torch.isinf(x), x, x.clamp(-LARGEST, LARGEST)))


def softmax(x: Tensor, dim: int, half_to_float: bool = False, *, half: bool) -> Tensor:
    """max, sub, exp, sum, realdiv, all in 16 bit; a float32 input is computed in 16 bit too (torch-spyre PR 2012)."""
    if x.numel() == 0 or x.dim() == 0 or x.dtype is not torch.float32:
        return torch.softmax(x, dim)
    values = _in_order(x) if half else _narrowed(_in_order(x))
    weights = exponential(round_(values - values.amax(dim, keepdim=True)))
    denominator = round_(total(weights, [dim], True, "softmax"))
    return round_(weights / denominator)


def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None, *, half: bool) -> Tensor:
    """`softmax` whose fully masked rows are zero."""
    masked = (x == -torch.inf).all(dim, keepdim=True)
    return softmax(x, dim, half=half).masked_fill_(masked, 0.0)


def log_softmax(x: Tensor, dim: int, half_to_float: bool = False, *, half: bool) -> Tensor:
    """x - max - log(sum(exp(x - max))), as Inductor decomposes it."""
    if not half or x.numel() == 0 or x.dim() == 0:
        return torch.log_softmax(x, dim)
    x = _in_order(x)
    shifted = round_(x - x.amax(dim, keepdim=True))
    denominator = round_(total(exponential(shifted), [dim], True, "softmax"))
    return round_(shifted - round_(torch.log(denominator)))


def layer_norm(
    x: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float, *, half: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """exx2 (moments, in float32), layernormscale, layernormnorm; results of aten::native_layer_norm."""
    if not half:
        return torch.native_layer_norm(x, normalized_shape, weight, bias, eps)
    x = x.contiguous()
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    count = math.prod(normalized_shape)
    mean = total(x, dims, True, "moments") / count
    square = total(x * x, dims, True, "moments") / count
    variance = (square - mean * mean).clamp_min_(0.0)
    scale = round_(torch.rsqrt(variance + round_scalar(eps)))
    result = (x - round_(mean)) * scale
    if weight is not None:
        result = result * weight
    if bias is not None:
        result = result + bias
    return round_(result), mean, scale


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, *, half: bool) -> Tensor:
    """mean(x·x), rsqrt(mean + eps), ·x, ·weight, each in the input's dtype, over the last dimension."""
    square = half_or_exact(x * x, half)
    mean = average(square, [-1], True, half=half)
    scale = half_or_exact(torch.rsqrt(half_or_exact(mean + (round_scalar(eps) if half else eps), half)), half)
    result = half_or_exact(x * scale, half)
    return result if weight is None else half_or_exact(result * weight, half)


def reduced_sum(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, half: bool
) -> Tensor:
    """aten::sum.dim_IntList."""
    if not half or x.dtype is not torch.float32:
        return torch.sum(x, dim if dim is not None else [], keepdim, dtype=dtype)
    return round_(_total(x, dim, keepdim, "sum"))


def full_sum(x: Tensor, *, dtype: torch.dtype | None = None, half: bool) -> Tensor:
    """aten::sum"""
    return reduced_sum(x, None, False, dtype=dtype, half=half)


def average(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None, half: bool
) -> Tensor:
    """aten::mean.dim: the sum times the constant 1/N, which is encoded like every constant."""
    if not half or x.dtype is not torch.float32:
        return torch.mean(x, dim if dim is not None else [], keepdim, dtype=dtype)
    summed = round_(_total(x, dim, keepdim, "mean"))
    count = x.numel() // max(summed.numel(), 1)
    return round_(summed * round_scalar(1.0 / count)) if count else torch.full_like(summed, torch.nan)


def full_average(x: Tensor, *, dtype: torch.dtype | None = None, half: bool) -> Tensor:
    """aten::mean"""
    return average(x, None, False, dtype=dtype, half=half)


def _total(x: Tensor, dim: Any, keepdim: bool, kind: OperatorClass) -> Tensor:
    if x.dim() == 0:
        return x.clone()
    dims = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    return total(x, dims, keepdim, kind)


def mm(a: Tensor, b: Tensor, *, half: bool) -> Tensor:
    """aten::mm; `b` may be the codes of a compressed weight, which are decoded in blocks."""
    if b.dtype is torch.int16 and half:
        return round_(packed_matmul(a, b))
    return half_or_exact(torch.mm(a, b), half)


def packed_matmul(a: Tensor, codes: Tensor) -> Tensor:
    """``a @ decode(codes)`` in blocks of columns that stay in cache; not rounded."""
    inner, columns = codes.shape
    by_row = codes.stride(0) == 1  # a transposed weight: each column of b is contiguous
    width = max(_BLOCK_ELEMENTS // max(inner, 1), 1)
    result = torch.empty(columns, a.shape[0], dtype=torch.float32, device="cpu")
    left = a.t()
    for start in range(0, columns, width):
        block = codes[:, start : start + width].t()
        decoded = decode(block.contiguous()) if by_row else decode(block.t().contiguous()).t()
        torch.mm(decoded, left, out=result[start : start + width])
    return result.t().contiguous()


_BLOCK_ELEMENTS = 1 << 19
"""2 MB of float32: a block is multiplied while it is in cache."""


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False,
    *, half: bool,
) -> Tensor:  # fmt: skip
    """aten::embedding; only the rows that are read are decoded from a compressed weight."""
    if weight.dtype is torch.int16 and half:
        rows = weight.index_select(0, indices.reshape(-1).to(torch.int64))
        return decode(rows.contiguous()).view(*indices.shape, weight.shape[1])
    return torch.embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)


def addmm(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1, half: bool) -> Tensor:
    """mm, then add."""
    if not half:
        return torch.addmm(c, a, b, beta=beta, alpha=alpha)
    return _scaled_sum(c, mm(a, b, half=True), beta, alpha)


def baddbmm(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1, half: bool) -> Tensor:
    """bmm, then add."""
    if not half:
        return torch.baddbmm(c, a, b, beta=beta, alpha=alpha)
    return _scaled_sum(c, round_(torch.bmm(a, b)), beta, alpha)


def _scaled_sum(c: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    if alpha != 1:
        product = round_(product * round_scalar(alpha))
    if beta == 0:
        return product
    return round_(product.add_(c if beta == 1 else round_(c * round_scalar(beta))))


def softplus(x: Tensor, beta: float = 1, threshold: float = 20, *, half: bool) -> Tensor:
    """The device's primitive has beta 1: scale the input by beta and the result by its inverse."""
    if not half or beta == 1:
        return half_or_exact(torch.nn.functional.softplus(x, beta, threshold), half)
    scaled = round_(x * round_scalar(beta))
    result = round_(torch.nn.functional.softplus(scaled, 1.0, threshold))
    return round_(result * round_scalar(1.0 / beta))
