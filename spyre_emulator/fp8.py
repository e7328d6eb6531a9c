"""fp8 on the device: scales, conversions to and from e4m3, and the matmul, as operators of namespace ``spyre``.

After torch-spyre's customops.py, decompositions.py and its page on FP8 quantisation: scales are 16-bit numbers;
quantising is reciprocal, mul, clamp(±448) and a format conversion (``qfp8ch`` for activations, ``qfp8wt`` for weights,
which differ in where elements lie and not in their values); dequantising is ``fp8todl16`` and mul; the matmul gives a
16-bit result, and scales and bias follow as operators of their own. Only e4m3 computes.

No source states how the device rounds to e4m3; here to nearest, ties to even, as PyTorch does, with which the
published round trips agree exactly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from spyre_emulator import dispatch, kernels, padding, private
from spyre_emulator.dtypes import DLFLOAT
from spyre_emulator.kernels import Kernel
from spyre_emulator.numerics import CONSTANT_LARGEST, round_, round_scalar

Tensor = torch.Tensor
E4M3 = torch.float8_e4m3fn
LARGEST = 448.0
"""``FP8_E4M3FN_MAX``."""
SMALLEST_SCALE = 2.0**-23
"""``QUANTSCALEPERTOKENFP8_CLIP_MIN``, code 0x1000."""
STICK = 128
"""Elements of one byte in a stick."""


def scale_per_token(x: Tensor, scale_ub: float = LARGEST, *, half: bool = True) -> Tensor:
    """max|x| over the last dimension, times the encoded constant 1/`scale_ub`, clipped to 2^-23 and code 0x7DFF."""
    largest = x.abs().amax(-1, keepdim=True)
    return round_(largest * round_scalar(1.0 / scale_ub)).clamp_(SMALLEST_SCALE, CONSTANT_LARGEST)


def to_e4m3(x: Tensor, *, half: bool = True) -> Tensor:
    """``qfp8ch`` and ``qfp8wt``: the nearest e4m3 numbers; what lies beyond ±448 has to be clamped before."""
    return x.to(E4M3)


def quantize(x: Tensor, scale: Tensor, *, half: bool = True) -> Tensor:
    """reciprocal(scale), mul, clamp(±448), conversion; each step but the last rounded to 16 bits."""
    scaled = round_(x * round_(torch.reciprocal(scale)))
    return to_e4m3(scaled.clamp_(-LARGEST, LARGEST))


def quantize_with_fresh_scale(x: Tensor, *, half: bool = True) -> tuple[Tensor, Tensor]:
    """`quantize` by `scale_per_token`, and the scale, which this older form hands out as float32."""
    scale = scale_per_token(x)
    return quantize(x, scale), scale


def dequantize(x: Tensor, scale: Tensor, *, half: bool = True) -> Tensor:
    """fp8todl16, which is exact, then mul."""
    return round_(x.to(torch.float32) * scale)


def matmul(a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None, *, half: bool = True) -> Tensor:
    """``batchmatmulfp8``: a 16-bit result; K in whole sticks of 128."""
    if a.shape[-1] % STICK:
        raise RuntimeError(
            f"dxp_standalone --bundle died with SIGABRT: FP8 matmul with K={a.shape[-1]}, "
            f"K must be a multiple of {STICK} (torch-spyre#4308)"
        )
    return round_(a.to(torch.float32) @ b.to(torch.float32))


def scaled_matmul(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    half: bool,
) -> Tensor:
    """aten::_scaled_mm: `matmul`, times scale_a, times scale_b, plus bias; the other arguments are ignored."""
    if out_dtype is None or out_dtype.itemsize == 1:
        raise ValueError("_scaled_mm on spyre gives 16-bit results: pass out_dtype=torch.float16")
    for name, given in (("scale_result", scale_result is not None), ("use_fast_accum", use_fast_accum)):
        if given:
            warnings.warn(f"_scaled_mm on spyre ignores {name}", UserWarning, stacklevel=2)
    result = matmul(a, b)
    for scale in (scale_a, scale_b):
        result = round_(result * scale)
    return result if bias is None else round_(result + bias)


def with_wide_scales(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """aten::_scaled_mm in eager mode: PyTorch's rule of result dtypes knows float32 scales only, so widen them."""
    for name, dtype in (("first", a.dtype), ("second", b.dtype)):
        if dtype is not E4M3:
            raise ValueError(f"_scaled_mm on spyre: the {name} operand is {dtype}, it has to be {E4M3}")
    result: Tensor = dispatch.call_for(private.aten._scaled_mm.default)(
        a, b, scale_a.to(torch.float32), scale_b.to(torch.float32), *args, **kwargs
    )
    return result


class Fp8Operator(NamedTuple):
    """One operator of namespace ``spyre``: its schema, its kernel, and what it takes and gives."""

    schema: str
    program: Callable[..., Any]
    takes: frozenset[torch.dtype]
    """Dtypes of its first operand."""
    result: Callable[..., Any]
    """The results without their values, for tracing."""
    reads: padding.Reader | None = None


def _e4m3_like(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, dtype=E4M3)


def _half_like(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, dtype=torch.float16)


def _scale_like(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty((*x.shape[:-1], 1))


def _quantized_like(x: Tensor) -> tuple[Tensor, Tensor]:
    return _e4m3_like(x), _scale_like(x).to(torch.float32)


def _product_like(a: Tensor, b: Tensor, out_dtype: torch.dtype | None = None) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=out_dtype or torch.float16)


_FP8 = frozenset({E4M3})
_WITH_SCALE = "(Tensor input, Tensor scale) -> Tensor"
_PRODUCT = "(Tensor mat1, Tensor mat2, ScalarType? out_dtype=None) -> Tensor"
OPERATORS = (
    Fp8Operator(
        "quantscalepertokenfp8(Tensor input, float scale_ub=448.) -> Tensor",
        scale_per_token,
        DLFLOAT,
        _scale_like,
        padding.last_dimension("norm"),
    ),
    Fp8Operator("qfp8ch(Tensor input) -> Tensor", to_e4m3, DLFLOAT, _e4m3_like),
    Fp8Operator("qfp8wt(Tensor input) -> Tensor", to_e4m3, DLFLOAT, _e4m3_like),
    Fp8Operator("quantize_fp8(Tensor input) -> (Tensor, Tensor)", quantize_with_fresh_scale, DLFLOAT, _quantized_like),
    Fp8Operator(f"quantize_fp8_with_scale{_WITH_SCALE}", quantize, DLFLOAT, _e4m3_like),
    Fp8Operator(f"quantize_weight_fp8_with_scale{_WITH_SCALE}", quantize, DLFLOAT, _e4m3_like),
    Fp8Operator(f"dequantize_fp8_with_scale{_WITH_SCALE}", dequantize, _FP8, _half_like),
    Fp8Operator(f"scaled_mm{_PRODUCT}", matmul, _FP8, _product_like),
)


def check(name: str, takes: frozenset[torch.dtype], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """ValueError where ``spyre::name`` does not take the dtypes or shapes of its operands."""
    first, *others = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    if first.dtype not in takes:
        wanted = " or ".join(sorted(str(d) for d in takes))
        raise ValueError(f"spyre::{name}: the first operand is {first.dtype}, it has to be {wanted}")
    if first.dim() == 0:
        raise ValueError(f"spyre::{name}: the first operand has no dimension")
    rest = [a for a in (*args, *kwargs.values()) if not isinstance(a, Tensor)]
    if name == "scaled_mm":
        _check_product(first, others[0], rest)
    for scale in others if name != "scaled_mm" else ():
        if scale.dtype not in DLFLOAT:
            raise ValueError(f"spyre::{name}: the scale is {scale.dtype}, it has to be 16 bit: scale.half()")
        behind = first.shape[max(first.dim() - scale.dim(), 0) :]
        if scale.dim() > first.dim() or any(n not in (1, m) for n, m in zip(scale.shape, behind, strict=True)):
            raise ValueError(f"spyre::{name}: a scale of {tuple(scale.shape)} does not fit {tuple(first.shape)}")
    if name == "quantscalepertokenfp8" and not all(bound > 0 for bound in rest):
        raise ValueError(f"spyre::{name}: scale_ub is {rest[0]}, it has to be above 0")


def _check_product(a: Tensor, b: Tensor, rest: list[Any]) -> None:
    if b.dtype is not E4M3:
        raise ValueError(f"spyre::scaled_mm: the second operand is {b.dtype}, it has to be {E4M3}")
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"spyre::scaled_mm: {tuple(a.shape)} and {tuple(b.shape)} cannot be multiplied")
    for dtype in rest:
        if dtype is not None and dtype not in DLFLOAT:
            raise ValueError(f"spyre::scaled_mm: out_dtype is {dtype}, the result is 16 bit: use torch.float16")


def _checked(operator: Fp8Operator, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any, **kwargs: Any) -> Any:
        check(name, operator.takes, args, kwargs)
        return call(*args, **kwargs)

    return checked


def register() -> None:
    """Define the operators, eager and while tracing."""
    kernels.register(Kernel(private.aten._scaled_mm.default, scaled_matmul, program=True, scalars=False))
    private.registers_for("aten", "PrivateUse1")("_scaled_mm", with_wide_scales)
    on_device, meta = (private.registers_for("spyre", key) for key in ("PrivateUse1", "Meta"))
    for operator in OPERATORS:
        name = operator.schema.partition("(")[0]
        private.define("spyre", operator.schema)
        op = getattr(torch.ops.spyre, name).default
        kernels.register(Kernel(op, operator.program, program=True, scalars=False, reads=operator.reads))
        on_device(name, _checked(operator, name, dispatch.call_for(op)))
        meta(name, _checked(operator, name, operator.result))
