"""Registers the device ``spyre`` with PyTorch: allocation, views, copies, autocast, save and load, every kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from spyre_emulator import accelerator, attention, catalog, custom, dispatch, fp8, memory, private, recurrent, transfers
from spyre_emulator.dispatch import check_device
from spyre_emulator.dtypes import shadow_dtype
from spyre_emulator.memory import readable, shadow, wrap

aten = private.aten
Tensor = torch.Tensor

_REMAIN_COMPOSITE = frozenset(
    [
        "_to_copy",
        "_unsafe_view",
        "clone",
        "copy",
        "copy_",
        "contiguous",
        "empty_like",
        "new_empty",
        "new_empty_strided",
        "lift",
        "lift_fresh",
        "detach",
        "detach_copy",
        "resize_as_",
        "resize",
        "resize_output",
        "_resize_output_",
        "_resize_output",
        "is_same_size",
        "isinf",
        "is_pinned",
        "pin_memory",
        "_pin_memory",
        "to",
        "_efficientzerotensor",
        "set_data",
        "record_stream",
        "_has_same_storage_numel",
        "block_diag",
        "zeros_like",
        "ones_like",
        "full_like",
        "rand_like",
        "randn_like",
        "randint_like",
        "new_full",
        "new_zeros",
        "new_ones",
        "_nested_tensor_from_tensor_list",
        "_foreach_copy_",
        "_fw_primal",
        "_make_dual",
        "sym_size",
        "sym_stride",
        "sym_numel",
        "sym_storage_offset",
        "unsafe_chunk",
        "unsafe_split",
        "unsafe_split_with_sizes",
        "native_dropout",
    ]
)
"""Composite operators whose own decomposition into allocation, copy and views is what the device does."""
_LOWER_PRECISION = (
    "linear",
    "matmul",
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "scaled_dot_product_attention",
    "conv1d",
    "conv2d",
    "conv3d",
)


def _geometry_default(dtype: torch.dtype | None, device: Any) -> torch.dtype:
    if device is not None:
        check_device(torch.device(device))
    return dtype or torch.get_default_dtype()


def empty(
    size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """aten::empty.memory_format"""
    logical = _geometry_default(dtype, device)
    keep = memory_format or torch.contiguous_format
    return wrap(torch.empty(size, dtype=shadow_dtype(logical), memory_format=keep, device="cpu"), logical)


def empty_strided(
    size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Tensor:
    """aten::empty_strided"""
    logical = _geometry_default(dtype, device)
    return wrap(torch.empty_strided(size, stride, dtype=shadow_dtype(logical), device="cpu"), logical)


def zeros(size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Tensor:
    """aten::_efficientzerotensor, the tangents of forward-mode gradients: PyTorch's has no storage to share."""
    return empty(size, dtype, device=device).zero_()


def as_strided(x: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """aten::as_strided"""
    return private.as_strided(x, size, stride, storage_offset)


def set_geometry(x: Tensor, source: Any, storage_offset: int, size: Any, stride: Any = ()) -> Tensor:
    """aten::set_.source_Storage_storage_offset; raw storages from torch.load get their buffer here.

    Tensors of bytes do not say what a raw storage holds: PyTorch makes them to copy storages.
    """
    raw = getattr(source, "raw_bytes", None) is not None and not hasattr(source, "spyre")
    if raw and x.dtype is not torch.uint8:
        memory.adopt(source, x.dtype)
    return private.set_storage(x, source, storage_offset, size, stride)


def set_tensor(x: Tensor, source: Tensor) -> Tensor:
    """aten::set_.source_Tensor"""
    return private.set_storage(x, source.untyped_storage(), int(source.storage_offset()), source.shape, source.stride())


def set_storage(x: Tensor, source: Any) -> Tensor:
    """aten::set_.source_Storage"""
    return set_geometry(x, source, 0, (source.nbytes() // x.element_size(),), (1,))


def resize(x: Tensor, size: Any, memory_format: Any = None) -> Tensor:
    """aten::resize_; a larger storage is allocated where needed, keeping what was there."""
    if memory_format is None and torch.Size(size) == x.shape:
        return x
    count = torch.Size(size).numel()
    storage = x.untyped_storage()
    needed = (x.storage_offset() + count) * x.element_size()
    if needed > storage.nbytes():
        larger = torch.empty(x.storage_offset() + count, dtype=shadow_dtype(x.dtype), device="cpu")
        old = storage.nbytes() // x.element_size()
        if old and hasattr(storage, "spyre"):
            flat = private.as_strided(x, (old,), (1,), 0)
            larger[:old].copy_(shadow(flat))
        storage = wrap(larger, x.dtype).untyped_storage()
    stride = torch.empty(size, device="meta", memory_format=memory_format or torch.contiguous_format).stride()
    return private.set_storage(x, storage, int(x.storage_offset()), size, stride)


def copy_from(source: Tensor, destination: Tensor, non_blocking: bool = False) -> Tensor:
    """aten::_copy_from"""
    for t in (source, destination):
        if not t.is_cpu and t.device.type != private.DEVICE_NAME:
            raise RuntimeError(f"spyre: copies between spyre and {t.device.type} go through the host: use .cpu()")
    if source.shape != destination.shape:
        source = source.expand(destination.shape)
    transfers.copy_into(destination, source)
    return destination


def copy_from_and_resize(source: Tensor, destination: Tensor) -> Tensor:
    """aten::_copy_from_and_resize"""
    return copy_from(source, destination.resize_(source.shape))


def to_copy(
    x: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    non_blocking: bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """aten::_to_copy to, from and on the device."""
    logical = dtype or x.dtype
    on_device = x.device.type == private.DEVICE_NAME
    if on_device and (device is None or torch.device(device).type == private.DEVICE_NAME):
        _geometry_default(dtype, device)
        transfers.COUNTS["d2d"] += 1
        return wrap(transfers.to_copy(x, readable(x), logical, memory_format), logical)
    keep = memory_format or torch.preserve_format
    result = torch.empty_like(x, dtype=logical, device=device, memory_format=keep)
    if result.device.type == "meta":
        return result
    return copy_from(x, result)


def clone(x: Tensor, *, memory_format: Any = None) -> Tensor:
    """aten::clone"""
    host = readable(x)
    return wrap(host.clone(memory_format=memory_format or torch.preserve_format), x.dtype)


def keeps_parameters(x: Tensor, source: Tensor) -> bool:
    """aten::_has_compatible_shallow_copy_type: ``Module.to`` moves a parameter rather than making another.

    Without it PyTorch, which answers no for devices it does not know, takes weights apart that a model ties.
    """
    return True


def local_scalar(x: Tensor) -> Any:
    """aten::_local_scalar_dense: the element as a Python number, through the host's dtype."""
    from spyre_emulator.conversions import to_host

    transfers.COUNTS["d2h"] += 1
    return to_host(readable(x), x.dtype).item()


def _register_memory() -> None:
    register = private.registers_for("aten", "PrivateUse1")
    kernels: dict[str, Callable[..., Any]] = {
        "empty.memory_format": empty,
        "empty_strided": empty_strided,
        "as_strided": as_strided,
        "view": private.cpu_kernel(aten.view.default),
        "_reshape_alias": private.cpu_kernel(aten._reshape_alias.default),
        "set_.source_Storage_storage_offset": set_geometry,
        "set_.source_Tensor": set_tensor,
        "set_.source_Storage": set_storage,
        "resize_": resize,
        "_copy_from": copy_from,
        "_copy_from_and_resize": copy_from_and_resize,
        "_to_copy": to_copy,
        "clone": clone,
        "lift_fresh_copy": clone,
        "_efficientzerotensor": zeros,
        "_local_scalar_dense": local_scalar,
        "_has_compatible_shallow_copy_type": keeps_parameters,
        "_thnn_fused_lstm_cell": recurrent.lstm_cell,
        "_thnn_fused_gru_cell": recurrent.gru_cell,
    }
    for name, kernel in kernels.items():
        register(name, kernel)


def _register_operators() -> None:
    """Give each operator that PyTorch would decompose before the backend fallback its own entry."""
    register = private.registers_for("aten", "PrivateUse1")
    private.register_fallback(dispatch.boxed, "PrivateUse1")
    for name, op in private.operators():
        base = name.partition(".")[0]
        if base in _REMAIN_COMPOSITE or private.has_kernel(name, "PrivateUse1") or not _decomposed_early(name):
            continue
        writes = [a for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        returns_view = any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns)
        if returns_view or not op._schema.returns:
            continue
        if writes and dispatch.functional_of(op) is None:
            continue
        register(name, dispatch.call_for(op))


def _decomposed_early(name: str) -> bool:
    return private.has_kernel(name, "CompositeExplicitAutograd") or private.has_kernel(
        name, "CompositeExplicitAutogradNonFunctional"
    )


def _autocast_kernel(op: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype(private.DEVICE_NAME)

        def lowered(v: Any) -> Any:
            eligible = isinstance(v, Tensor) and v.is_floating_point() and v.device.type == private.DEVICE_NAME
            return v.to(dtype) if eligible else v

        with private.without_autocast():
            return op(*[lowered(a) for a in args], **{k: lowered(v) for k, v in kwargs.items()})

    return call


def _register_autocast() -> None:
    private.register_fallback(private.fall_through(), "AutocastPrivateUse1")
    register = private.registers_for("aten", "AutocastPrivateUse1")
    for name in _LOWER_PRECISION:
        register(name, _autocast_kernel(getattr(aten, name).default))


def _register_serialization() -> None:
    def tag(storage: Any) -> str | None:
        return "spyre:0" if storage.device.type == private.DEVICE_NAME else None

    def place(storage: Any, location: str) -> Any:
        if not location.startswith(private.DEVICE_NAME):
            return None
        check_device(torch.device(location))
        return memory.raw_storage(storage.nbytes(), storage)

    torch.serialization.register_package(5, tag, place)


def register(module: private.DeviceModuleBase) -> None:
    """Make ``torch.device("spyre")`` exist and work; called once, at import of the package."""
    memory.DEVICE = private.register_device(module)
    catalog.fill()
    _register_memory()
    attention.register()
    custom.register()
    fp8.register()
    _register_operators()
    _register_autocast()
    _register_serialization()
    private.patch_storage_constructor(memory.raw_storage, check_device)
    private.keep_storages_in_their_process()
    private.patch_generator(check_device)
    accelerator.register()
