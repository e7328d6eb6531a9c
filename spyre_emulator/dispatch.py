"""Eager mode: how PyTorch's dispatcher reaches the kernel table for tensors on the device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from spyre_emulator import constraints, fallbacks, kernels, memory, operators, private, recording, settings
from spyre_emulator.dtypes import DLFLOAT, shadow_dtype
from spyre_emulator.kernels import Kernel
from spyre_emulator.memory import codes_of, readable, shadow, wrap
from spyre_emulator.numerics import round_
from spyre_emulator.outcomes import check_operands, guess, operand_dtypes, outcome_of

OpOverload = private.OpOverload
Tensor = torch.Tensor
CPU = torch.device("cpu")


def check_device(device: torch.device) -> None:
    """Raise unless `device` is the one card of this process."""
    if device.index not in (None, 0):
        raise RuntimeError(
            f"invalid device {device}: a process owns one Spyre card, local index 0; "
            f"several cards take one process each (torch.distributed)"
        )


def host_argument(a: Any) -> Any:
    """Argument `a` of a device call as the host computation takes it."""
    if isinstance(a, Tensor):
        if not a.is_cpu:
            if a.device.type != private.DEVICE_NAME:
                return a
            return shadow(a)
        return a.to(torch.float32) if a.dtype in DLFLOAT else a
    kind = type(a)
    if kind is list or kind is tuple:
        return kind([host_argument(x) for x in a])
    if kind is torch.dtype:
        return torch.float32 if a in DLFLOAT else a
    if kind is torch.device and a.type == private.DEVICE_NAME:
        check_device(a)
        return CPU
    return a


def operand(a: Any) -> Any:
    """Argument `a` to read: as `host_argument`; a host tensor has to be a single number."""
    if isinstance(a, Tensor):
        if not a.is_cpu:
            return readable(a) if a.device.type == private.DEVICE_NAME else a
        if a.dim():
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, spyre:0 and cpu!"
            )
    return host_argument(a)


def packed_operands(kernel: Kernel, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`args` of a kernel that decodes by itself, with codes where a compressed weight stands."""
    return tuple(
        [
            codes if i in kernel.packed and isinstance(a, Tensor) and (codes := codes_of(a)) is not None else operand(a)
            for i, a in enumerate(args)
        ]
    )


class EagerCall:
    """The eager kernel of one operator: callable from the dispatcher with device tensors."""

    __slots__ = ("fallback", "kernel", "op", "ruled")

    def __init__(self, op: OpOverload) -> None:
        self.op = op
        self.kernel = kernels.lookup(op)
        self.fallback = operators.state_of(op, compiled=False) != operators.ENABLED
        self.ruled = constraints.has_argument_rule(op)

    def _book(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if recording.active:
            operands = (*args, *kwargs.values()) if kwargs else args
            refused = self.ruled and constraints.refused_arguments(self.op, args, kwargs) is not None
            key = (self.op, False, recording.operand_key(operands), refused)
            for record in recording.active:
                record.eager[key] += 1
        if self.fallback or settings.current.coverage == "published" or settings.current.strict:
            fallbacks.check_eager(self.op, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._book(args, kwargs)
        packed = self.kernel.packed and memory.any_compressed() and not kernels.is_hooked(self.op)
        host_args = packed_operands(self.kernel, args) if packed else tuple([operand(a) for a in args])
        host_kwargs = {k: operand(v) for k, v in kwargs.items()} if kwargs else kwargs
        return compute(self.op, self.kernel, args, kwargs, host_args, host_kwargs)


def compute(
    op: OpOverload, kernel: Kernel, args: Any, kwargs: dict[str, Any], host_args: Any, host_kwargs: dict[str, Any]
) -> Any:
    """Device result of a functional operator, given its device and host arguments."""
    outcome = outcome_of(kernel, args, kwargs)
    if outcome is None:
        half = {"half": any(d in DLFLOAT for d in operand_dtypes(args))} if kernel.program else {}
        result = kernel.compute(*host_args, **host_kwargs, **half)
        outcome = guess(kernel, args, kwargs, result)
        correct = kernels.round_results(result, outcome.dtypes)
        if kernels.is_hooked(op):
            result = kernels.through_hooks(kernel, host_args, host_kwargs, _dtypes(args), "eager", lambda: correct)
    elif kernels.is_hooked(op) or settings.current.nan_padding:
        result = kernels.run_hooked(kernel, outcome, host_args, host_kwargs, _dtypes(args), "eager")
    else:
        result = kernels.compute(kernel, outcome, host_args, host_kwargs)
    if isinstance(result, Tensor):
        return wrap(result, outcome.dtypes[0] or result.dtype)
    return _wrap_all(result, outcome.dtypes)


def _dtypes(args: Any) -> tuple[torch.dtype | None, ...]:
    return tuple(a.dtype if isinstance(a, Tensor) else None for a in args)


def _wrap_all(result: Any, dtypes: Sequence[Any]) -> Any:
    if not isinstance(result, (tuple, list)):
        return result
    items = [
        wrap(r, dtype or r.dtype) if isinstance(r, Tensor) else r
        for r, dtype in zip(result, _padded(dtypes, len(result)), strict=True)
    ]
    return items if isinstance(result, list) else tuple(items)


def _padded(dtypes: Sequence[Any], count: int) -> Sequence[Any]:
    return dtypes if len(dtypes) == count else [dtypes[0]] * count


def view(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Device views for an operator that has no device-independent kernel, found on the shadow."""
    base: Tensor = args[0]
    result = op(*[host_argument(a) for a in args], **{k: host_argument(v) for k, v in kwargs.items()})

    def device_view(r: Tensor) -> Tensor:
        offset = int(r.storage_offset())
        if r.dtype is shadow_dtype(base.dtype):
            return private.as_strided(base, r.shape, r.stride(), offset)
        if base.dtype in DLFLOAT:
            raise RuntimeError(f"spyre: {op} has no view of {base.dtype}; convert the tensor to float32 first")
        return private.make_tensor(base.untyped_storage(), offset, r.shape, r.stride(), r.dtype)

    return type(result)(map(device_view, result)) if isinstance(result, (tuple, list)) else device_view(result)


class MutatingCall:
    """An operator that writes into arguments: the functional kernel, then a copy; or in place where values move."""

    __slots__ = ("eager", "functional", "in_place", "op", "returned", "targets")

    def __init__(self, op: OpOverload, functional: OpOverload | None) -> None:
        self.op = op
        self.functional = functional
        self.eager = EagerCall(functional) if functional is not None else None
        self.targets = [
            (i, a.name, a.kwarg_only)
            for i, a in enumerate(op._schema.arguments)
            if a.alias_info is not None and a.alias_info.is_write
        ]
        out = any(keyword for _, _, keyword in self.targets)
        self.in_place = None if functional is None or out else kernels.lookup(functional).in_place
        self.returned = _written_returns(op)

    def _written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return [kwargs.get(name) if keyword or i >= len(args) else args[i] for i, name, keyword in self.targets]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        written = self._written(args, kwargs)
        for target in written:
            self._check_target(target)
        if self.eager is None:
            return self._directly(args, kwargs, written)
        if self.in_place is not None and not kernels.is_hooked(self.eager.op):
            outcome_of(self.eager.kernel, args, kwargs)  # raises for operands that the operator does not take
            self.eager._book(args, kwargs)
            self.in_place(*[host_argument(a) for a in args], **{k: host_argument(v) for k, v in kwargs.items()})
            return written[0]
        return self._functionally(args, kwargs, written)

    def _check_target(self, target: Any) -> None:
        if not isinstance(target, Tensor):
            return
        if target.is_cpu:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but {self.op} on spyre:0 writes into a tensor on cpu"
            )
        if memory.is_reinterpreted(target):
            raise RuntimeError(
                f"spyre: {self.op} writes through a view of another dtype ({target.dtype}); "
                f"write to the tensor it was made from"
            )

    def _functionally(self, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[Any]) -> Any:
        assert self.eager is not None
        names = {name for _, name, keyword in self.targets if keyword}
        inputs = {k: v for k, v in kwargs.items() if k not in names}
        result = self.eager(*args, **inputs)
        results = result if isinstance(result, (tuple, list)) else (result,)
        for (_, _, keyword), target, value in zip(self.targets, written, results, strict=True):
            _fit(target, value, resizes=keyword)
            store(target, value)
        return written[0] if len(written) == 1 else tuple(written)

    def _directly(self, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[Any]) -> Any:
        """Run the mutating CPU operator itself on the shadows, then round what it wrote."""
        for record in recording.active:
            record.eager[(self.op, False, recording.operand_key((*args, *kwargs.values())), False)] += 1
        fallbacks.check_eager(self.op, args, kwargs)
        check_operands(self.op, args, kwargs)
        host_args = [host_argument(a) for a in args]
        host_kwargs = {k: host_argument(v) for k, v in kwargs.items()}
        result = self.op(*host_args, **host_kwargs)
        hosts = [
            host_kwargs.get(name) if keyword or i >= len(args) else host_args[i] for i, name, keyword in self.targets
        ]
        for target, host in zip(written, hosts, strict=True):
            _settle(target, host)
        return self._returned(args, kwargs, written, result)

    def _returned(self, args: Any, kwargs: dict[str, Any], written: list[Any], result: Any) -> Any:
        if not self.op._schema.returns:
            return None
        if self.returned is not None:
            returned = [written[i] for i in self.returned]
            return returned[0] if len(returned) == 1 else tuple(returned)
        return _wrap_all(result, guess(kernels.lookup(self.op), args, kwargs, result).dtypes)


def _written_returns(op: OpOverload) -> list[int] | None:
    """Which written argument each result of `op` is; None where a result is a new tensor.

    PyTorch ends the process when a kernel hands it more results than the schema has.
    """
    sets = [a.alias_info.before_set for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    if not all(r.alias_info is not None and r.alias_info.before_set in sets for r in op._schema.returns):
        return None
    return [sets.index(r.alias_info.before_set) for r in op._schema.returns if r.alias_info is not None]


def _settle(target: Any, host: Any) -> None:
    """Round what a CPU operator wrote into `host`, the shadow of `target`, and follow a change of its shape."""
    if isinstance(target, (list, tuple)):
        for t, h in zip(target, host, strict=True):
            _settle(t, h)
        return
    if not isinstance(target, Tensor) or target.is_cpu:
        return
    if target.dtype in DLFLOAT:
        round_(host)
    if host.shape != target.shape:
        replaced = wrap(host, target.dtype)
        private.set_storage(target, replaced.untyped_storage(), 0, host.shape, host.stride())


def _fit(target: Tensor, value: Tensor, resizes: bool) -> None:
    """Give an ``out=`` tensor the shape of `value`, as PyTorch does; an in-place target needs to have it."""
    if target.shape == value.shape:
        return
    wanted, found = list(value.shape), list(target.shape)
    if not resizes:
        raise RuntimeError(f"output with shape {found} doesn't match the broadcast shape {wanted}")
    if target.numel():
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {found}, which does not match the "
            f"required output shape {wanted}; pass out=tensor.resize_(0) to reuse its memory",
            stacklevel=3,
        )
    target.resize_(value.shape)


def store(target: Tensor, value: Tensor) -> None:
    """Copy device `value` into device `target` of the same shape."""
    if not torch.can_cast(value.dtype, target.dtype):
        raise RuntimeError(f"result type {value.dtype} can't be cast to the desired output type {target.dtype}")
    host = shadow(target)
    source = shadow(value)
    if target.dtype in DLFLOAT and value.dtype not in DLFLOAT:
        host.copy_(round_(source.to(torch.float32, copy=True)))
    else:
        host.copy_(source)


_calls: dict[OpOverload, Callable[..., Any]] = {}


def call_for(op: OpOverload) -> Callable[..., Any]:
    """The eager kernel of `op`, made on first use."""
    known = _calls.get(op)
    if known is None:
        known = _calls[op] = _make_call(op)
    return known


def _make_call(op: OpOverload) -> Callable[..., Any]:
    schema = op._schema
    if any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments):
        return MutatingCall(op, functional_of(op))
    if kernels.lookup(op).is_view:
        return lambda *args, **kwargs: view(op, args, kwargs)
    return EagerCall(op)


def functional_of(op: OpOverload) -> OpOverload | None:
    """The functional operator behind an in-place or ``out=`` overload, where one with the same inputs exists."""
    schema = op._schema
    name = schema.name.partition("::")[2]
    written = {a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write}
    in_place = name.endswith("_") and not name.endswith("__")
    packet = getattr(private.aten, name.removesuffix("_") if in_place else name, None)
    if packet is None or name.startswith("_foreach") or len(schema.returns) != len(written):
        return None
    dropped = set() if in_place else written
    inputs = [a for a in schema.arguments if a.name not in dropped]
    wanted = [(a.name, str(a.type)) for a in inputs]
    for overload in packet.overloads():
        candidate: OpOverload = getattr(packet, overload)
        arguments = candidate._schema.arguments
        if any(a.alias_info is not None for a in arguments):
            continue
        if [(a.name, str(a.type)) for a in arguments] != wanted or len(candidate._schema.returns) != len(written):
            continue
        if all(a.has_default_value() or not b.has_default_value() for a, b in zip(arguments, inputs, strict=True)):
            return candidate  # a call that leaves an argument out leaves it out for both
    return None


def boxed(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The backend fallback: serves every operator without a kernel of its own."""
    return call_for(op)(*args, **kwargs)
