"""The module object ``torch.spyre``: device count, memory, streams, seeds, properties, warning switch."""

from __future__ import annotations

import dataclasses
import itertools
import os
from typing import Any

import torch

from spyre_emulator import dtypes, layout, memory, private, settings
from spyre_emulator.dispatch import check_device

Device = Any
LOW_PRIORITY, HIGH_PRIORITY = 0, -1


def _check(device: Device) -> None:
    if device is None:
        return
    check_device(torch.device(private.DEVICE_NAME, device) if isinstance(device, int) else torch.device(device))


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    """What ``get_device_properties`` tells about the card."""

    name: str
    total_memory: int
    """Bytes."""
    multi_processor_count: int
    """Cores in use (``SENCORES``)."""
    architecture: str
    """``SENARCH``."""


class Stream:
    """A FIFO queue of launches. Launches of this device end before the call returns, so there is nothing to wait for.

    Ids: 0 default, 1 to 32 low priority, 33 to 64 high priority.
    """

    _low = itertools.cycle(range(1, 33))
    _high = itertools.cycle(range(33, 65))

    def __init__(self, device: Device = None, priority: int = LOW_PRIORITY, *, stream_id: int | None = None) -> None:
        _check(device)
        if stream_id is None:
            stream_id = next(self._high if priority < 0 else self._low)
        self.stream_id = stream_id
        self.device = memory.DEVICE
        self.priority = HIGH_PRIORITY if 33 <= stream_id <= 64 else LOW_PRIORITY

    def synchronize(self) -> None:
        """Wait for the launches of this stream."""

    def query(self) -> bool:
        """Whether every launch has ended."""
        return True

    def wait_stream(self, stream: Stream) -> None:
        """Order later launches behind those of `stream`."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event behind the launches so far."""
        event = event or Event()
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def __enter__(self) -> Stream:
        _streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _streams.pop()


class Event:
    """A mark in a stream."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.stream: Stream | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark the present end of `stream`."""
        self.stream = stream or _streams[-1]

    def query(self) -> bool:
        """Whether the mark was passed."""
        return True

    def synchronize(self) -> None:
        """Wait until the mark is passed."""

    def wait(self, stream: Stream | None = None) -> None:
        """Order `stream` behind the mark."""


_streams: list[Any] = [Stream(stream_id=0)]


class Memory:
    """``torch.spyre.memory``: bytes in use on the device, padding lanes included."""

    def memory_allocated(self, device: Device = None) -> int:
        """Bytes in use."""
        _check(device)
        return memory.ACCOUNTING.allocated

    def max_memory_allocated(self, device: Device = None) -> int:
        """The most bytes in use since the last reset."""
        _check(device)
        return memory.ACCOUNTING.peak

    def reset_peak_memory_stats(self, device: Device = None) -> None:
        """Forget the peak."""
        _check(device)
        memory.ACCOUNTING.peak = memory.ACCOUNTING.allocated

    def memory_reserved(self, device: Device = None) -> int:
        """Bytes the allocator holds; here those in use."""
        return self.memory_allocated(device)

    def max_memory_reserved(self, device: Device = None) -> int:
        """The most bytes the allocator held."""
        return self.max_memory_allocated(device)

    def mem_get_info(self, device: Device = None) -> tuple[int, int]:
        """(free, total) bytes."""
        total = settings.current.device_memory
        return total - self.memory_allocated(device), total

    def empty_cache(self) -> None:
        """Nothing is cached: freed memory is free."""

    def memory_stats(self, device: Device = None) -> dict[str, int]:
        """Counters of the allocator."""
        return {
            "allocated_bytes.all.current": self.memory_allocated(device),
            "allocated_bytes.all.peak": self.max_memory_allocated(device),
            "allocation.all.allocated": memory.ACCOUNTING.allocations,
        }


class SpyreModule(private.DeviceModuleBase):
    """``torch.spyre``."""

    SpyreTensorLayout = layout.SpyreTensorLayout
    memory = Memory()

    class device:  # noqa: N801 - torch looks for this name
        """Context manager that selects the one card."""

        def __init__(self, device: Device) -> None:
            _check(device)

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    def _lazy_init(self) -> None: ...

    def is_available(self) -> bool:
        """True: the emulated card is always there."""
        return True

    def is_initialized(self) -> bool:
        """True."""
        return True

    def device_count(self) -> int:
        """1: a process owns one card."""
        return 1

    def current_device(self) -> int:
        """0."""
        return 0

    def set_device(self, device: Device) -> None:
        """Accepts the one card, refuses others."""
        _check(device)

    def synchronize(self, device: Device = None) -> None:
        """Returns when all launches have ended."""
        _check(device)

    def manual_seed(self, seed: int) -> None:
        """Seed the generator: random numbers of this device come from the host's."""
        torch.default_generator.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Called by torch.manual_seed, which seeds the host's generator itself."""

    def initial_seed(self) -> int:
        """The seed in use."""
        return torch.initial_seed()

    def seed(self) -> int:
        """A fresh random seed, now in use."""
        return torch.default_generator.seed()

    def get_rng_state(self, device: Device = None) -> torch.Tensor:
        """State of the host's generator."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Device = None) -> None:
        """Restore a state of the host's generator."""
        torch.set_rng_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Dtypes of autocast."""
        return [torch.float16, torch.bfloat16]

    def get_device_properties(self, device: Device = None) -> DeviceProperties:
        """Properties of the card."""
        _check(device)
        return DeviceProperties(
            name="spyre",
            total_memory=settings.current.device_memory,
            multi_processor_count=settings.current.sencores,
            architecture=os.environ.get("SENARCH", "rcudd1a"),
        )

    def get_device_name(self, device: Device = None) -> str:
        """``spyre``."""
        return self.get_device_properties(device).name

    def get_device_capability(self, device: Device = None) -> str:
        """``SENARCH``, which stands for the compute capability."""
        return self.get_device_properties(device).architecture

    def current_stream(self, device: Device = None) -> Stream:
        """The stream launches go to."""
        _check(device)
        stream: Stream = _streams[-1]
        return stream

    def default_stream(self, device: Device = None) -> Stream:
        """Stream 0."""
        _check(device)
        stream: Stream = _streams[0]
        return stream

    def stream(self, stream: Stream) -> Stream:
        """`stream` as a context manager."""
        return stream

    def set_stream(self, stream: Stream) -> None:
        """Send launches to `stream` from now on."""
        _streams[-1] = stream

    def set_downcast_warning(self, enabled: bool) -> None:
        """Switch the one-time warning about int64 on or off."""
        settings.change(downcast_warn=enabled)
        dtypes.reset_downcast_warning()

    def memory_allocated(self, device: Device = None) -> int:
        """Bytes in use."""
        return self.memory.memory_allocated(device)

    def max_memory_allocated(self, device: Device = None) -> int:
        """The most bytes in use since the last reset."""
        return self.memory.max_memory_allocated(device)

    def reset_peak_memory_stats(self, device: Device = None) -> None:
        """Forget the peak."""
        self.memory.reset_peak_memory_stats(device)

    def memory_stats(self, device: Device = None) -> dict[str, int]:
        """Counters of the allocator."""
        return self.memory.memory_stats(device)

    def mem_get_info(self, device: Device = None) -> tuple[int, int]:
        """(free, total) bytes."""
        return self.memory.mem_get_info(device)

    def empty_cache(self) -> None:
        """Nothing is cached."""


SpyreModule.Stream = Stream  # type: ignore[attr-defined]
SpyreModule.Event = Event  # type: ignore[attr-defined]
