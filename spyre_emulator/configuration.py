"""Every setting that acts on results, as text, for an observation to carry."""

from __future__ import annotations

import dataclasses

from spyre_emulator import kernels, numerics, settings

_reporters: dict[str, object] = {}


def configuration() -> dict[str, str]:
    """Setting name to value; operators with hooks (faults) among them."""
    values = {name: str(value) for name, value in dataclasses.asdict(settings.current).items()}
    values["rounding_kernel"] = "c" if numerics.has_native_kernel() else "torch"
    values["hooked_operators"] = ",".join(sorted(kernels.hooked()))
    return values
