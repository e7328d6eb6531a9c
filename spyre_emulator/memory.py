"""Device memory: the buffer behind each device storage, its shadow on the host, and the accounting.

A device storage owns one `Buffer` through a Python attribute, which lives exactly as long as the storage does, even
when only views of it are left.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
from typing import Any

import torch

from spyre_emulator import numerics, private, settings
from spyre_emulator.conversions import to_device
from spyre_emulator.dtypes import BYTES_IN_STICK, DLFLOAT, shadow_dtype
from spyre_emulator.layout import device_bytes

DEVICE = torch.device("cpu")
"""The device ``spyre:0``; set by `spyre_emulator.registration` when it exists."""


SEGMENT_BYTES = 16 << 30
"""Device memory is addressed in segments of 16 GiB; one tensor lies in one segment."""


class Accounting:
    """Bytes charged to the device, now and at the peak."""

    __slots__ = ("allocated", "allocations", "peak")

    def __init__(self) -> None:
        self.allocated = 0
        self.peak = 0
        self.allocations = 0

    def charge(self, nbytes: int) -> None:
        """Take `nbytes`; torch.OutOfMemoryError when the device is full even after a garbage collection."""
        if nbytes > SEGMENT_BYTES:
            raise torch.OutOfMemoryError(
                f"Spyre out of memory: tried to allocate {nbytes} bytes, one segment holds {SEGMENT_BYTES}"
            )
        if self.allocated + nbytes > settings.current.device_memory:
            gc.collect()  # the allocator's out-of-memory callback does the same, then retries
            if self.allocated + nbytes > settings.current.device_memory:
                raise torch.OutOfMemoryError(
                    f"Spyre out of memory: tried to allocate {nbytes} bytes, {self.allocated} of "
                    f"{settings.current.device_memory} are in use"
                )
        self.allocated += nbytes
        self.allocations += 1
        self.peak = max(self.peak, self.allocated)


ACCOUNTING = Accounting()


class Buffer:
    """What a device storage holds: its values on the host, and its charge on the device.

    The values are a float32 (or natural) host tensor, or, for large 16-bit weights with ``compressed_weights``, codes
    of two bytes; `host` is then memory that was never touched, which the values return to when someone writes.
    """

    __slots__ = ("charged", "codes", "dtype", "geometry", "host")

    def __init__(self, host: torch.Tensor, dtype: torch.dtype, geometry: Any, charged: int) -> None:
        ACCOUNTING.charge(charged)
        self.charged = charged
        self.host = host
        self.codes: torch.Tensor | None = None
        self.dtype = dtype
        self.geometry = geometry
        """(shape, strides, offset, dtype) of the tensor the storage was made for."""

    def __del__(self) -> None:
        charged = getattr(self, "charged", 0)
        ACCOUNTING.allocated -= charged

    def unpack(self) -> torch.Tensor:
        """The host tensor with this buffer's values, for reading and writing; codes are given up."""
        codes = self.codes
        if codes is not None:
            self.codes = None
            numerics.decode(codes, _flat(self.host))
        return self.host


def _flat(host: torch.Tensor) -> torch.Tensor:
    count = host.untyped_storage().nbytes() // host.element_size()
    return host.as_strided((count,), (1,), 0)


def wrap(host: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A device tensor of logical `dtype` over shadow `host`, which it shares and keeps alive."""
    if host.layout is not torch.strided or host.is_quantized:
        kind = "a quantized tensor" if host.is_quantized else f"a tensor of layout {host.layout}"
        raise NotImplementedError(f"spyre: the result is {kind}, which the device has not; compute it on .cpu()")
    source = host.untyped_storage()
    nbytes = source.nbytes()
    shadow_size = host.element_size()
    if dtype.itemsize != shadow_size:
        nbytes = nbytes // shadow_size * dtype.itemsize
    shape = host.shape
    stride = host.stride()
    offset = int(host.storage_offset())
    storage = private.make_storage(source, DEVICE, nbytes)
    storage.spyre = Buffer(host, dtype, (shape, stride, offset, dtype), device_bytes(shape, dtype))
    return private.make_tensor(storage, offset, shape, stride, dtype)


def shadow(tensor: torch.Tensor) -> torch.Tensor:
    """The host tensor that shares memory with device `tensor`; for another dtype of view, a detached copy."""
    buffer = getattr(tensor.untyped_storage(), "spyre", None)
    if buffer is None:
        return _shadow_of_foreign_storage(tensor)
    host: torch.Tensor = buffer.host if buffer.codes is None else buffer.unpack()
    geometry = (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype)
    if geometry == buffer.geometry:
        return host
    if buffer.dtype is not tensor.dtype:
        return _reinterpreted(buffer, tensor)
    return host.as_strided(geometry[0], geometry[1], geometry[2])


def codes_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The 16-bit codes (int16, same geometry) behind a compressed `tensor`; None where its shadow exists."""
    buffer = getattr(tensor.untyped_storage(), "spyre", None)
    if buffer is None or buffer.codes is None or buffer.dtype is not tensor.dtype:
        return None
    codes: torch.Tensor = buffer.codes
    return codes.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """Host values of device `tensor` to read, in its geometry: its shadow, or codes decoded for this once."""
    if not _packed or codes_of(tensor) is None:
        return shadow(tensor)
    codes = tensor.untyped_storage().spyre.codes  # type: ignore[attr-defined]
    return numerics.decode(codes).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


_packed = False
"""Whether any buffer was ever compressed, so that the usual reader pays one test."""


def any_compressed() -> bool:
    """Whether any buffer was ever compressed."""
    return _packed


COMPRESSED_ELEMENTS = 1 << 16
"""Tensors with fewer elements are not worth decoding."""
_BLOCK = 1 << 20


def compress(destination: torch.Tensor, source: torch.Tensor) -> bool:
    """Store contiguous host `source` as the codes of a whole fresh 16-bit `destination`; False where it does not apply.

    Infinities and NaN share one code on the device, so tensors that hold any keep their shadow.
    """
    global _packed
    buffer = getattr(destination.untyped_storage(), "spyre", None)
    if (
        buffer is None
        or buffer.dtype not in DLFLOAT
        or destination.numel() < COMPRESSED_ELEMENTS
        or not (destination.is_contiguous() and source.is_contiguous())
        or (destination.shape, destination.stride(), 0, destination.dtype) != buffer.geometry
        or destination.numel() * buffer.dtype.itemsize != destination.untyped_storage().nbytes()
    ):
        return False
    codes = torch.empty(destination.numel(), dtype=torch.int16, device="cpu")
    flat = source.view(-1)
    for start in range(0, flat.numel(), _BLOCK):
        block = to_device(flat[start : start + _BLOCK], destination.dtype)
        if not bool(torch.isfinite(block).all()):
            return False
        codes[start : start + _BLOCK] = numerics.encode(block)
    buffer.codes = codes
    _give_back_pages(buffer.host)
    _packed = True
    return True


def _give_back_pages(host: torch.Tensor) -> None:
    """Tell the system that the values of `host` are not needed: whole pages inside it take no memory until written.

    The allocator hands out memory that was used before, so a fresh tensor is not free of cost by itself.
    """
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    storage = host.untyped_storage()
    start = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (storage.data_ptr() + storage.nbytes() - start) // mmap.PAGESIZE * mmap.PAGESIZE
    if size > 0:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def _shadow_of_foreign_storage(tensor: torch.Tensor) -> torch.Tensor:
    raw = getattr(tensor.untyped_storage(), "raw_bytes", None)
    if raw is not None and tensor.dtype not in DLFLOAT:
        empty = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return empty.set_(raw, tensor.storage_offset(), tensor.shape, tensor.stride())
    if tensor.untyped_storage().nbytes() == 0:
        return torch.empty(tensor.shape, dtype=shadow_dtype(tensor.dtype), device="cpu")
    raise RuntimeError(
        f"spyre: a tensor of shape {tuple(tensor.shape)} lies over a storage that the emulator did not make; "
        f"copy the data to the device with .to('spyre')"
    )


def _reinterpreted(buffer: Buffer, tensor: torch.Tensor) -> torch.Tensor:
    """Values of a view with another dtype than the storage's: host bits of the logical dtype, copied."""
    bits = _flat(buffer.unpack()).to(buffer.dtype).view(tensor.dtype).to(shadow_dtype(tensor.dtype))
    return bits.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def is_reinterpreted(tensor: torch.Tensor) -> bool:
    """Whether `tensor` views its storage under another dtype, so that writes to it would be lost."""
    buffer = getattr(tensor.untyped_storage(), "spyre", None)
    return buffer is not None and buffer.dtype is not tensor.dtype


def write_bytes(destination: torch.Tensor, source: torch.Tensor) -> bool:
    """Fill a whole storage from the bytes of its host form; False unless `destination` is all its bytes."""
    storage = destination.untyped_storage()
    buffer = getattr(storage, "spyre", None)
    if buffer is None or buffer.dtype is torch.uint8 or destination.dtype is not torch.uint8:
        return False
    if source.dtype is not torch.uint8 or destination.numel() != storage.nbytes() or not destination.is_contiguous():
        return False
    _flat(buffer.unpack()).copy_(to_device(source.contiguous().view(buffer.dtype).view(-1), buffer.dtype))
    return True


def adopt(storage: Any, dtype: torch.dtype) -> None:
    """Give a storage of raw host bytes (from torch.load or UntypedStorage) its buffer, now that `dtype` is known."""
    raw: torch.UntypedStorage = storage.raw_bytes
    count = raw.nbytes() // dtype.itemsize
    host = torch.empty(0, dtype=dtype, device="cpu").set_(raw, 0, (count,), (1,))
    values = to_device(host, dtype)
    storage.spyre = Buffer(values, dtype, ((count,), (1,), 0, dtype), device_bytes((count,), dtype))


def raw_storage(nbytes: int, raw: torch.UntypedStorage | None = None) -> Any:
    """A device storage over host bytes whose dtype is not known yet; zero-filled unless `raw` is given."""
    if raw is None:
        raw = torch.zeros(nbytes, dtype=torch.uint8, device="cpu").untyped_storage()
    storage = private.make_storage(raw, DEVICE, nbytes)
    storage.raw_bytes = raw
    return storage


def sticks(nbytes: int) -> int:
    """Whole sticks that hold `nbytes`."""
    return -(-nbytes // BYTES_IN_STICK)
