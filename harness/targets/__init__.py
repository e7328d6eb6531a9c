"""Where a case runs: a device together with its software stack."""

from __future__ import annotations

from harness.errors import UsageError
from harness.targets.base import Target, Usage
from harness.targets.spyre import SpyreTarget
from harness.targets.torch_device import TorchTarget

__all__ = ["Target", "Usage", "get"]


def get(name: str) -> Target:
    """The target of that name: ``spyre``, or any device type that torch knows."""
    if name == "spyre":
        return SpyreTarget()
    target = TorchTarget(name)
    problem = target.unavailable()
    if problem:
        raise UsageError(f"target {name!r}: {problem}. Name 'spyre', 'cpu' or an installed torch device.")
    return target
