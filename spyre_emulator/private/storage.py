"""Storages and tensors on the device: made from host memory, viewed, saved and loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from spyre_emulator.private.contract import DEVICE_NAME, require

aten = torch.ops.aten
_CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_construct_storage = torch._C._construct_storage_from_data_pointer
_create_empty = torch._C._acc.create_empty_tensor
_set_redispatch = aten.set_.source_Storage_storage_offset.redispatch
_as_strided_redispatch = aten.as_strided.default.redispatch


def make_storage(host: torch.UntypedStorage, device: torch.device, nbytes: int) -> Any:
    """A non-owning storage on `device` at the address of `host`; the caller keeps `host` alive."""
    return _construct_storage(host.data_ptr(), device, nbytes)


def make_tensor(
    storage: Any, offset: int, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """A device tensor of the given geometry (in elements) over `storage`."""
    result: torch.Tensor = _set_redispatch(_CPU_KEYS, _create_empty((0,), dtype), storage, offset, shape, stride)
    return result


def set_storage(tensor: torch.Tensor, storage: Any, offset: int, shape: Any, stride: Any) -> torch.Tensor:
    """`tensor` itself, now over `storage` with the given geometry."""
    result: torch.Tensor = _set_redispatch(_CPU_KEYS, tensor, storage, offset, shape, stride)
    return result


def as_strided(tensor: torch.Tensor, shape: Any, stride: Any, offset: int | None) -> torch.Tensor:
    """A view of a device tensor; nothing is copied."""
    result: torch.Tensor = _as_strided_redispatch(_CPU_KEYS, tensor, shape, stride, offset)
    return result


def check_storage_contract(device: torch.device) -> None:
    """Raise where strided views or attributes of a storage do not work as the emulator needs them."""
    host = torch.arange(6, dtype=torch.float32, device="cpu")
    storage = make_storage(host.untyped_storage(), device, 24)
    storage.contract = "kept"
    tensor = make_tensor(storage, 1, (2, 2), (2, 1), torch.float32)
    view = as_strided(tensor, (2,), (2,), 2)
    del tensor, storage
    require(view.device == device and view.stride() == (2,), "strided views of a Python backend's storage fail")
    kept = getattr(view.untyped_storage(), "contract", None)
    require(kept == "kept", "Python attributes of a storage do not live as long as the storage")


def patch_storage_constructor(allocate: Callable[[int], Any], check: Callable[[torch.device], None]) -> None:
    """Let ``torch.UntypedStorage(n, device="spyre")`` come from `allocate`; unpatched it ends the process."""
    storage_class: Any = torch.UntypedStorage
    original = storage_class.__new__

    def new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None:
            return original(cls, *args, **kwargs)
        device = torch.device(device)
        if device.type != DEVICE_NAME:
            return original(cls, *args, device=device, **kwargs)
        check(device)
        size = args[0] if args else 0
        return allocate(size if isinstance(size, int) else len(size))

    storage_class.__new__ = staticmethod(new)
    original_new, original_write = storage_class.new, storage_class._write_file
    original_read = storage_class._set_from_file

    def empty_like(self: Any) -> Any:
        return allocate(0) if self.device.type == DEVICE_NAME else original_new(self)

    def write_file(self: Any, *args: Any) -> Any:  # the original reads the address of the storage, not its values
        return original_write(self.cpu() if self.device.type == DEVICE_NAME else self, *args)

    storage_class.new = empty_like

    def set_from_file(self: Any, *args: Any) -> Any:
        if self.device.type != DEVICE_NAME:
            return original_read(self, *args)
        host = storage_class(self.nbytes())
        original_read(host, *args)
        return self.copy_(host)

    storage_class._write_file = write_file
    storage_class._set_from_file = set_from_file


_QUEUE_FEEDER = "QueueFeederThread"
"""multiprocessing's name of the thread that pickles what was put into a queue."""


def keep_storages_in_their_process() -> None:
    """Refuse to hand device tensors to another process: each process owns its card.

    A queue's feeder thread prints an error and drops the item, for which the reader would wait for ever (the main
    process for a DataLoader's worker, say), so there the refusal travels in the item's place.
    """
    require(hasattr(reductions, "reduce_storage"), "torch.multiprocessing.reductions.reduce_storage is missing")

    original: Callable[[Any], Any] = reductions.reduce_storage

    def reduce_storage(storage: Any) -> Any:
        if storage.device.type != DEVICE_NAME:
            return original(storage)
        if threading.current_thread().name != _QUEUE_FEEDER:
            refuse_transfer()
        return refuse_transfer, ()

    ForkingPickler.register(torch.UntypedStorage, reduce_storage)


def refuse_transfer() -> None:
    """Raise: a device tensor does not leave its process."""
    raise RuntimeError(
        "spyre: a device tensor cannot go to another process, which would own another card; send tensor.cpu() "
        "(in a Dataset or collate_fn of a DataLoader with workers: keep the data on the CPU, move each batch after it "
        "arrived)"
    )
