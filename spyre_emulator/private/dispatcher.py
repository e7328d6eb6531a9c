"""PyTorch's dispatcher: operators, kernels under dispatch keys, decompositions, modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils import _python_dispatch

aten = torch.ops.aten
OpOverload = torch._ops.OpOverload
_key: Any = torch._C.DispatchKey
_CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_AUTOCAST_KEYS = torch._C.DispatchKeySet(_key.AutocastPrivateUse1)
_libraries: list[Any] = []
_library: Any = torch.library.Library


def cpu_kernel(op: OpOverload) -> Callable[..., Any]:
    """The CPU kernel of an operator that does not look at the device (views), callable with device tensors."""
    redispatch = op.redispatch

    def call(*args: Any, **kwargs: Any) -> Any:
        return redispatch(_CPU_KEYS, *args, **kwargs)

    return call


def define(namespace: str, schema: str) -> None:
    """Define a new operator."""
    library: Any = _library(namespace, "FRAGMENT")
    _libraries.append(library)
    library.define(schema)


def registers_for(namespace: str, key: str) -> Callable[[str, Callable[..., Any]], None]:
    """A function ``(operator name, kernel)`` that registers kernels of `namespace` under dispatch key `key`."""
    library: Any = _library(namespace, "IMPL")
    _libraries.append(library)

    def register(name: str, kernel: Callable[..., Any]) -> None:
        library.impl(name, kernel, key)

    return register


def temporary_kernel(name: str, kernel: Callable[..., Any]) -> Callable[[], None]:
    """Register `kernel` for aten operator `name` on the device; call the result to take it back."""
    library: Any = _library("aten", "IMPL")
    library.impl(name, kernel, "PrivateUse1")

    def remove() -> None:
        library._destroy()

    return remove


def register_fallback(kernel: Callable[..., Any], key: str) -> None:
    """Make `kernel`, called as ``kernel(op, *args, **kwargs)``, serve every operator without one under `key`."""
    library: Any = _library("_", "IMPL")
    _libraries.append(library)
    library.fallback(kernel, key)


def fall_through() -> Callable[..., Any]:
    """The kernel that hands on to the next dispatch key."""
    return torch.library.fallthrough_kernel


def operators() -> Iterator[tuple[str, OpOverload]]:
    """Every aten operator as (qualified name without ``aten::``, overload)."""
    for qualified in torch._C._dispatch_get_all_op_names():
        if not qualified.startswith("aten::"):
            continue
        name, _, overload = qualified[6:].partition(".")
        packet = getattr(aten, name, None)
        found = getattr(packet, overload or "default", None)
        if isinstance(found, OpOverload):
            yield qualified[6:], found


def has_kernel(name: str, key: str) -> bool:
    """Whether aten operator `name` has its own kernel under dispatch key `key`."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key))


def without_autocast() -> AbstractContextManager[Any]:
    """A context in which the device's autocast kernels are skipped."""
    guard: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_KEYS)
    return guard


def without_modes() -> AbstractContextManager[Any]:
    """A context without active dispatch modes, for work on real tensors while Dynamo traces with fake ones."""
    context: AbstractContextManager[Any] = _python_dispatch._disable_current_modes()
    return context


def is_tracing() -> bool:
    """Whether a dispatch mode (tracing with fake tensors) is active."""
    return bool(_python_dispatch._get_current_dispatch_mode_stack())


def override_composite(op: OpOverload, wants: Callable[..., bool], kernel: Callable[..., Any]) -> None:
    """While tracing, decompose `op` by `kernel` where ``wants(*args)`` holds, as before elsewhere."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    original: Any = op._op_dk

    def decompose(*args: Any, **kwargs: Any) -> Any:
        if wants(*args, **kwargs):
            return kernel(*args, **kwargs)
        return original(key, *args, **kwargs)

    register: Any = op.py_impl(key)
    register(decompose)


def composite(op: OpOverload) -> Callable[..., Any]:
    """PyTorch's own decomposition of `op` into other operators."""
    dispatch: Any = op._op_dk
    key = torch._C.DispatchKey.CompositeImplicitAutograd

    def call(*args: Any, **kwargs: Any) -> Any:
        return dispatch(key, *args, **kwargs)

    return call
