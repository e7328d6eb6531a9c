"""Public defects of the stack as switchable faults, off by default: they prove that a harness can fail.

``SPYRE_EMULATOR_FAULTS=F07,F21`` switches faults on for a process, ``with spyre_emulator.faults("F07")`` for a
context; `register_fault` adds one from outside the package. See docs/faults.md.
"""

from __future__ import annotations

from spyre_emulator.faults import dtype_faults, layout_faults, model_faults, padding_faults, runtime_faults
from spyre_emulator.faults.fault import (
    AtCast,
    AtConversion,
    AtCopy,
    AtGraph,
    AtOperator,
    AtPlanInput,
    AtReceive,
    AtView,
    Fault,
)
from spyre_emulator.faults.registry import (
    active_faults,
    fault_catalogue,
    faults,
    register_fault,
    switch_on_from,
    unregister_fault,
)

for _module in (layout_faults, padding_faults, dtype_faults, runtime_faults, model_faults):
    for _fault in _module.FAULTS:
        register_fault(_fault)

__all__ = [
    "AtCast",
    "AtConversion",
    "AtCopy",
    "AtGraph",
    "AtOperator",
    "AtPlanInput",
    "AtReceive",
    "AtView",
    "Fault",
    "active_faults",
    "fault_catalogue",
    "faults",
    "register_fault",
    "switch_on_from",
    "unregister_fault",
]
