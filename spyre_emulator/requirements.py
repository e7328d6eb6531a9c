"""What each operator asks of the sticks of its operands, and which of their dimensions are which of its result's.

After torch-spyre's docs/source/compiler/layout_optimization.md. Pointwise operators and reductions take any stick
that operands and result share (``AllSameNode``); matmul, convolution, attention and layer norm have fixed ones
(``FixedInOutNode``): A is sticked on k, B and the result on n; what is indexed or made by the host is read in any
arrangement (``AnyInNode``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from spyre_emulator.constraints import MATMUL, name_of
from spyre_emulator.sticks import Geometry

REDUCED = -1
"""In place of a result dimension: the operand's dimension is summed away."""


class Access(NamedTuple):
    """How an operator reads one operand."""

    dims: tuple[int | None, ...]
    """Per dimension of the operand the result's dimension that runs with it, `REDUCED`, or None for neither."""
    fixed: int | None = None
    """The dimension that has to be sticked, where the operator leaves no choice."""

    @property
    def at_random(self) -> bool:
        """Whether elements are picked by an index rather than read through."""
        return None in self.dims and REDUCED not in self.dims

    def acceptable(self, operand: Geometry, result_dim: int | None) -> tuple[int | None, ...] | None:
        """The dimensions one of which has to be sticked (None in it: one element per stick) when the result's
        `result_dim` is; None where any arrangement will do. The first is the one to restickify to."""
        if operand.numel <= 1:
            return None
        if self.fixed is not None:
            return None if operand.shape[self.fixed] == 1 else (self.fixed,)
        if result_dim is None:
            reduced = [d for d in reversed(range(len(self.dims))) if self.dims[d] == REDUCED and operand.shape[d] > 1]
            return (*reduced, None)
        along = [d for d, r in enumerate(self.dims) if r == result_dim and operand.shape[d] > 1]
        return tuple(along[-1:]) or (None,)


class Requirement(NamedTuple):
    """What one operator asks for."""

    accesses: tuple[Access | None, ...]
    """Per operand; None: read in any arrangement."""
    fixed_result: int | None = None
    """The result's dimension that is sticked, where the operator leaves no choice."""
    stick_reduction: bool = True
    """Whether it can reduce along the stick dimension; ``prod`` cannot."""
    barred: int | None = None
    """A dimension of the result that cannot be sticked, because the operator indexes or stacks along it."""
    contracted: int = 1
    """Size of the dimension that is summed over, where work can be divided along it (matmul)."""


Arguments = tuple[Any, ...]


def requirement(op: Any, args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    """The requirement of `op` on `operands` (its tensors in order, lists flattened); `args` as the graph has them."""
    name = name_of(op)
    if name in MATMUL:
        return _matmul(operands, result)
    rule = _RULES.get(name)
    if rule is not None:
        return rule(args, operands, result)
    return _pointwise(operands, result)


def _aligned(operand: Geometry, result: Geometry) -> Access | None:
    """Dimensions aligned from the right; None where the operand does not broadcast to the result."""
    shift = len(result.shape) - len(operand.shape)
    if shift < 0 or any(n not in (1, result.shape[d + shift]) for d, n in enumerate(operand.shape)):
        return None
    return Access(tuple(d + shift for d in range(len(operand.shape))))


def _pointwise(operands: list[Geometry], result: Geometry) -> Requirement:
    return Requirement(tuple(_aligned(v, result) for v in operands))


def _same_dimensions(args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    """Operators whose operands have the result's dimensions in other sizes: cat, pad, repeat of the same rank."""
    rank = len(result.shape)
    return Requirement(tuple(Access(tuple(range(rank))) if len(v.shape) == rank else None for v in operands))


def _matmul(operands: list[Geometry], result: Geometry) -> Requirement:
    *addends, a, b = operands
    rank, last = len(result.shape), len(result.shape) - 1
    if len(a.shape) < 2 or len(b.shape) < 2 or rank < 2:
        return Requirement(tuple(None for _ in operands))
    left = (*range(rank - len(a.shape), rank - 1), REDUCED)
    right = (*range(rank - len(b.shape), rank - 2), REDUCED, last)
    accesses = [_aligned(v, result) for v in addends]
    accesses += [Access(left, len(a.shape) - 1), Access(right, len(b.shape) - 1)]
    return Requirement(tuple(accesses), last, contracted=a.shape[-1])


def _fp8_matmul(args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    """The weight has its own two-dimensional stick [2, 64] whatever its host strides are."""
    a = operands[0]
    accesses = (Access((*range(len(a.shape) - 1), REDUCED), len(a.shape) - 1), *(None for _ in operands[1:]))
    return Requirement(accesses, len(result.shape) - 1, contracted=a.shape[-1])


def _attention(args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    """query · key^T sticks the query on the head dimension and the key on its length; value and result on the last."""
    rank = len(result.shape)
    batch = tuple(range(rank - 2))
    query = Access((*batch, rank - 2, REDUCED), rank - 1)
    key = Access((*batch, REDUCED, REDUCED), rank - 2)
    value = Access((*batch, REDUCED, rank - 1), rank - 1)
    bias = [Access((None,) * len(v.shape), len(v.shape) - 1) for v in operands[3:]]
    return Requirement((query, key, value, *bias), rank - 1)


def _last_dimension(args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    """exx2 and layernormnorm read the last dimension in sticks; so do scales per token."""
    x, *others = operands
    rank = len(x.shape)
    accesses = (Access(tuple(range(rank)), rank - 1), *(_aligned(v, result) for v in others))
    return Requirement(accesses, rank - 1 if result.shape[rank - 1] > 1 else None)


def _dimensions(args: Arguments, position: int, rank: int) -> list[int]:
    given = args[position] if len(args) > position else None
    if given is None or (isinstance(given, (list, tuple)) and not given):
        return list(range(rank))
    return [d % rank for d in ([given] if isinstance(given, int) else given)]


def _reduction(args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    x = operands[0]
    rank = len(x.shape)
    if rank == 0 or len(operands) > 1:  # aten::max.other and its like are pointwise
        return _pointwise(operands, result)
    reduced = _dimensions(args, 1, rank)
    kept = [d for d in range(rank) if d not in reduced]
    places = dict(zip(kept, range(len(kept)), strict=True)) if len(result.shape) == len(kept) else {d: d for d in kept}
    dims = tuple(REDUCED if d in reduced else places.get(d) for d in range(rank))
    return Requirement((Access(dims), *(None for _ in operands[1:])))


def _product(args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    return _reduction(args, operands, result)._replace(stick_reduction=False)


def _norm(args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    """vector norms take their dimensions behind the order."""
    return _reduction((args[0], *args[2:]), operands, result)


def _embedding(args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    weight = Access((None, len(result.shape) - 1), 1)
    return Requirement((weight, *(None for _ in operands[1:])), len(result.shape) - 1)


def _indexed(args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    """What is gathered from or scattered into keeps its stick; the indexed dimension lies outermost on the device."""
    rank = len(result.shape)
    dim = args[1] % rank if rank and len(args) > 1 and isinstance(args[1], int) else 0
    whole = [Access(tuple(None if d == dim else d for d in range(rank))) if _floats(v) else None for v in operands]
    barred = dim if rank > 1 else None
    return Requirement(tuple(a if a and len(a.dims) == len(v.shape) else None
                             for a, v in zip(whole, operands, strict=True)), barred=barred)  # fmt: skip


def _floats(v: Geometry) -> bool:
    return v.dtype.is_floating_point


def _stack(args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    rank = len(result.shape)
    dim = (args[1] if len(args) > 1 else 0) % rank
    dims = tuple(d for d in range(rank) if d != dim)
    return Requirement(tuple(Access(dims) for _ in operands), barred=dim)


def _convolution(args: Arguments, operands: list[Geometry], result: Geometry) -> Requirement:
    """The activation is sticked on its input channels, weight and result on the output channels."""
    x, _, *bias = operands
    spatial = len(x.shape) - 2
    accesses = (
        Access((0, REDUCED, *(None,) * spatial), 1),
        Access((1, REDUCED, *(None,) * spatial), 0),
        *(Access((1,), 0) for _ in bias),
    )
    return Requirement(accesses, 1)


_Rule = Callable[[Arguments, list[Geometry], Geometry], Requirement]
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("_scaled_mm", "scaled_mm"), _fp8_matmul),
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    **dict.fromkeys(("native_layer_norm", "quantscalepertokenfp8"), _last_dimension),
    **dict.fromkeys(
        ("sum", "mean", "amax", "amin", "max", "min", "any", "all", "argmax", "argmin", "var", "std", "logsumexp"),
        _reduction,
    ),
    "prod": _product,
    "linalg_vector_norm": _norm,
    "embedding": _embedding,
    **dict.fromkeys(
        ("index_select", "index_copy", "index_add", "gather", "scatter", "scatter_add", "index", "index_put"), _indexed
    ),
    **dict.fromkeys(("cat", "constant_pad_nd", "repeat", "slice_scatter", "select_scatter", "topk"), _same_dimensions),
    "stack": _stack,
    **dict.fromkeys(("convolution", "convolution_overrideable"), _convolution),
}
