"""The only package that touches private PyTorch calls; contract tests guard each of them at import.

Everything else in the emulator uses the names defined here, so a new torch release is the work of these files.
"""

from spyre_emulator.private.compilation import (
    aot,
    drop_synchronization,
    graph_breaks,
    inductor_error,
    is_recompilation,
    register_dynamo,
    route_inductor,
    size_hint,
    traced,
)
from spyre_emulator.private.contract import DEVICE_NAME, TESTED_TORCH, ContractError
from spyre_emulator.private.device import (
    DeviceModuleBase,
    patch_accelerator,
    patch_generator,
    process_group,
    register_device,
)
from spyre_emulator.private.dispatcher import (
    OpOverload,
    aten,
    composite,
    cpu_kernel,
    define,
    fall_through,
    has_kernel,
    is_tracing,
    operators,
    override_composite,
    register_fallback,
    registers_for,
    temporary_kernel,
    without_autocast,
    without_modes,
)
from spyre_emulator.private.storage import (
    as_strided,
    make_storage,
    make_tensor,
    patch_storage_constructor,
    set_storage,
)

__all__ = [
    "DEVICE_NAME",
    "TESTED_TORCH",
    "ContractError",
    "DeviceModuleBase",
    "OpOverload",
    "aot",
    "as_strided",
    "aten",
    "composite",
    "cpu_kernel",
    "define",
    "drop_synchronization",
    "fall_through",
    "graph_breaks",
    "has_kernel",
    "inductor_error",
    "is_recompilation",
    "is_tracing",
    "make_storage",
    "make_tensor",
    "operators",
    "override_composite",
    "patch_accelerator",
    "patch_generator",
    "patch_storage_constructor",
    "process_group",
    "register_device",
    "register_dynamo",
    "register_fallback",
    "registers_for",
    "route_inductor",
    "set_storage",
    "size_hint",
    "temporary_kernel",
    "traced",
    "without_autocast",
    "without_modes",
]
