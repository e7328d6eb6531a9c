"""Every setting that acts on results, as text, for an observation to carry."""

from __future__ import annotations

import dataclasses

from spyre_emulator import accumulation, kernels, numerics, settings
from spyre_emulator.faults import active_faults


def configuration() -> dict[str, str]:
    """Setting name to value; the faults that are on, and operators with hooks, among them."""
    values = {name: str(value) for name, value in dataclasses.asdict(settings.current).items()}
    values["rounding_kernel"] = "c" if numerics.has_native_kernel() else "torch"
    values |= {f"accumulation.{name}": str(value) for name, value in accumulation.current.items()}
    values["faults"] = ",".join(active_faults())
    values["hooked_operators"] = ",".join(sorted(kernels.hooked()))
    return values
