"""What the emulator needs of this torch, checked at import; the error names the torch version."""

from __future__ import annotations

import torch
from torch.utils import backend_registration

DEVICE_NAME = "spyre"
TESTED_TORCH = "2.13"


class ContractError(ImportError):
    """This torch lacks, or changed, a private call that the emulator rests on."""


def require(holds: bool, what: str) -> None:
    """Raise unless `holds`; `what` says what is missing or changed."""
    if not holds:
        raise ContractError(
            f"spyre_emulator does not work with torch {torch.__version__}: {what}; "
            f"it was tested with torch {TESTED_TORCH}.x, install that"
        )


require(hasattr(torch._C, "_acc"), "torch._C._acc (Python accelerator registration) is missing")
for _name in ("create_empty_tensor", "register_python_privateuseone_hook", "DeviceGuard", "PrivateUse1Hooks"):
    require(hasattr(torch._C._acc, _name), f"torch._C._acc.{_name} is missing")
for _name in (
    "_construct_storage_from_data_pointer",
    "_dispatch_get_all_op_names",
    "_dispatch_has_kernel_for_dispatch_key",
    "_ExcludeDispatchKeyGuard",
    "DispatchKeySet",
    "_accelerator_synchronizeDevice",
    "_accelerator_getDeviceStats",
):
    require(hasattr(torch._C, _name), f"torch._C.{_name} is missing")
require(
    hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    "torch.utils.backend_registration._setup_privateuseone_for_python_backend is missing",
)
require(hasattr(torch, "_TorchCompileInductorWrapper"), "torch._TorchCompileInductorWrapper is missing")
