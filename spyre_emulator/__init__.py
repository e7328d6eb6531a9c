"""A software Spyre: registers the PyTorch device ``spyre``. Knows nothing of the harness.

Importing this package makes the device exist; ``import torch`` alone never does. It refuses to load beside
``torch_spyre``, whose device has the same name.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata


def _refuse_beside_torch_spyre() -> None:
    if "torch_spyre" in sys.modules:
        raise ImportError(
            "spyre_emulator: torch_spyre is loaded and owns the device 'spyre'; use one of the two in a process "
            "(TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch_spyre from loading itself)"
        )


_refuse_beside_torch_spyre()

from spyre_emulator import registration as _registration  # noqa: E402
from spyre_emulator import runtime as _runtime  # noqa: E402

_registration.register(_runtime.SpyreModule())

from spyre_emulator import collectives, compiler, distributed, overwrite  # noqa: E402
from spyre_emulator.configuration import configuration  # noqa: E402
from spyre_emulator.fallbacks import FallbackWarning, UnsupportedError  # noqa: E402
from spyre_emulator.faults import (  # noqa: E402
    Fault,
    active_faults,
    fault_catalogue,
    faults,
    register_fault,
    switch_on_from,
    unregister_fault,
)
from spyre_emulator.operators import replacement  # noqa: E402
from spyre_emulator.recording import CompileReport, OpVariant, Recording, record  # noqa: E402
from spyre_emulator.settings import Settings, using  # noqa: E402

compiler.register()
distributed.register()
collectives.register()
overwrite.register()
switch_on_from(os.environ)

__version__ = metadata.version("spyre-conformance")

__all__ = [
    "CompileReport",
    "FallbackWarning",
    "Fault",
    "OpVariant",
    "Recording",
    "Settings",
    "UnsupportedError",
    "active_faults",
    "configuration",
    "fault_catalogue",
    "faults",
    "record",
    "register_fault",
    "replacement",
    "unregister_fault",
    "using",
]
