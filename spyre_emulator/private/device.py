"""The device itself: its registration, its module, generators and process groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import backend_registration

from spyre_emulator.private.contract import DEVICE_NAME, require
from spyre_emulator.private.storage import check_storage_contract


class DeviceModuleBase(backend_registration._DummyBackendModule):  # type: ignore[misc, unused-ignore]
    """Base of the ``torch.spyre`` module object; brings what torch itself asks a backend module for."""


def register_device(module: DeviceModuleBase) -> torch.device:
    """The device ``spyre:0``, after registering the name and `module` with PyTorch (once per process)."""
    taken = torch._C._get_privateuse1_backend_name()
    require(taken == "privateuseone", f"another backend already took PrivateUse1 as {taken!r}")
    backend_registration._setup_privateuseone_for_python_backend(DEVICE_NAME, backend_module=module)
    device = torch.device(DEVICE_NAME, 0)
    check_storage_contract(device)
    return device


def patch_generator(check: Callable[[torch.device], None]) -> None:
    """Let ``torch.Generator("spyre")`` be a CPU generator: random numbers of this device come from the host."""
    original: Any = torch.Generator

    class AnyGenerator(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

    class Generator(original, metaclass=AnyGenerator):  # type: ignore[misc]
        """A random number generator; for the device ``spyre`` one of the host."""

        def __new__(cls, device: Any = "cpu") -> Any:
            device = torch.device(device)
            if device.type == DEVICE_NAME:
                check(device)
                device = torch.device("cpu")
            return original.__new__(cls, device=device)

    Generator.__name__ = Generator.__qualname__ = "Generator"
    torch.Generator = Generator  # type: ignore[misc]


def process_group(name: str) -> Any:
    """The process group that functional collectives call `name`."""
    from torch.distributed import distributed_c10d

    c10d: Any = distributed_c10d
    return c10d._resolve_process_group(name)


def patch_accelerator(functions: dict[str, Callable[..., Any]]) -> None:
    """Serve ``torch.accelerator`` from `functions`, by their names behind ``torch._C._accelerator_``.

    A backend made in Python has no allocator and no device guard of its own in C++: PyTorch's hooks for it
    (``torch._C._acc``) take three questions, none of them about memory, and the C++ functions raise an internal
    assertion, or end the process. The real stack registers both in C++.
    """
    for name, function in functions.items():
        full = f"_accelerator_{name}"
        require(hasattr(torch._C, full), f"torch._C.{full} is missing")
        setattr(torch._C, full, function)
