"""What is known of an eager call before it is computed: the logical dtypes of its results, from its meta kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from spyre_emulator import kernels, memory, private
from spyre_emulator.dtypes import DLFLOAT
from spyre_emulator.kernels import Kernel, Outcome

OpOverload = private.OpOverload
Tensor = torch.Tensor


def _signature(a: Any) -> Any:
    if isinstance(a, Tensor):
        return (a.dtype, a.dim() == 0)
    if isinstance(a, (list, tuple)):
        return tuple([_signature(x) for x in a]) if a and isinstance(a[0], (Tensor, type(None))) else None
    return a if isinstance(a, (torch.dtype, bool)) else type(a)


def _call_signature(op: OpOverload, args: Any, kwargs: dict[str, Any]) -> Any:
    named = tuple([(k, _signature(v)) for k, v in kwargs.items()]) if kwargs else None
    return (op, tuple([_signature(a) for a in args]), named)


def _meta_argument(a: Any) -> Any:
    if isinstance(a, Tensor):
        return torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device="meta")
    if isinstance(a, (list, tuple)):
        return type(a)([_meta_argument(x) for x in a])
    return torch.device("meta") if isinstance(a, torch.device) else a


_outcomes: dict[Any, Outcome | None] = {}


def outcome_of(kernel: Kernel, args: Any, kwargs: dict[str, Any]) -> Outcome | None:
    """What the meta kernel tells of a call, remembered per dtypes of its operands; None where it cannot tell."""
    key = _call_signature(kernel.op, args, kwargs)
    try:
        return _outcomes[key]
    except KeyError:
        found = _outcomes[key] = _infer(kernel, args, kwargs)
        return found


def _infer(kernel: Kernel, args: Any, kwargs: dict[str, Any]) -> Outcome | None:
    try:
        meta = kernel.op(*[_meta_argument(a) for a in args], **{k: _meta_argument(v) for k, v in kwargs.items()})
    except NotImplementedError:
        check_operands(kernel.op, args, kwargs)
        return None  # no meta kernel
    except (RuntimeError, TypeError, ValueError, IndexError) as refusal:
        _refuse_as_host(kernel.op, args, kwargs, refusal)
        return None  # one that needs data
    check_operands(kernel.op, args, kwargs)
    metas = meta if isinstance(meta, (tuple, list)) else (meta,)
    results = [m.dtype if isinstance(m, Tensor) else None for m in metas]
    return kernels.outcome(kernel, operand_dtypes((*args, *kwargs.values())), results)


def mixes_floats(dtypes: Iterable[torch.dtype]) -> bool:
    """Whether operands of `dtypes` have shadows of one dtype although their own differ, so that the host computes what
    it would refuse."""
    floats = {d for d in dtypes if d in DLFLOAT or d is torch.float32}
    return len(floats) > 1


_checked: set[Any] = set()


def check_operands(op: OpOverload, args: Any, kwargs: dict[str, Any]) -> None:
    """Raise as the CPU does where `op` does not take operands of these dtypes together; asked once per dtypes.

    Norms and gradients are not asked about: their statistics are float32 on a device, and on the CPU they are not.
    """
    name = op._schema.name
    if "norm" in name or "backward" in name:
        return
    if not mixes_floats(operand_dtypes((*args, *kwargs.values()))):
        return
    key = _call_signature(op, args, kwargs)
    if key not in _checked:
        _refuse_as_host(op, args, kwargs, None)
        _checked.add(key)


def _refuse_as_host(op: OpOverload, args: Any, kwargs: dict[str, Any], refusal: Exception | None) -> None:
    """Raise what the CPU raises for these operands in their own dtypes; `refusal` where it has no such operator."""
    with private.without_modes(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            op(*[_host_copy(a) for a in args], **{k: _host_copy(v) for k, v in kwargs.items()})
        except NotImplementedError:
            if refusal is not None and "meta" not in str(refusal):
                raise refusal from None


def _host_copy(a: Any) -> Any:
    """Argument `a` on the CPU, a tensor with its own dtype; contents of tensors that are traced are zero."""
    if isinstance(a, Tensor):
        if private.is_fake(a):
            return torch.zeros([private.size_hint(n) for n in a.shape], dtype=a.dtype, device="cpu")
        return memory.readable(a).to(a.dtype, copy=True) if a.device.type == private.DEVICE_NAME else a
    if isinstance(a, (list, tuple)):
        return type(a)([_host_copy(x) for x in a])
    return torch.device("cpu") if isinstance(a, torch.device) else a


def guess(kernel: Kernel, args: Any, kwargs: dict[str, Any], result: Any) -> Outcome:
    """The outcome of a call without a meta kernel: float32 results follow a 16-bit operand."""
    operands = operand_dtypes((*args, *kwargs.values()))
    halves = [d for d in operands if d in DLFLOAT]
    results = result if isinstance(result, (tuple, list)) else (result,)
    dtypes = [
        (halves[0] if halves and r.dtype is torch.float32 else r.dtype) if isinstance(r, Tensor) else None
        for r in results
    ]
    return kernels.outcome(kernel, operands, dtypes)


def operand_dtypes(args: Sequence[Any]) -> tuple[torch.dtype, ...]:
    """Logical dtypes of the tensors among `args`, one level of lists deep."""
    found: list[torch.dtype] = []
    for a in args:
        if isinstance(a, Tensor):
            found.append(a.dtype)
        elif isinstance(a, (list, tuple)):
            found.extend(x.dtype for x in a if isinstance(x, Tensor))
    return tuple(found)
