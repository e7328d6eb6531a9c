"""What every target can do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from harness.records import DeviceUse


class Usage(Protocol):
    """A record of device use that is being made."""

    def facts(self) -> DeviceUse:
        """What was executed since the recording began."""


class Target(Protocol):
    """A device together with its software stack."""

    name: str

    def unavailable(self) -> str | None:
        """Why the target cannot be used here; None when it can."""

    def device(self) -> torch.device:
        """The device that models and inputs are placed on. Loads the stack at the first call."""

    def compile(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call`` through ``torch.compile`` with static shapes."""

    def recording(self) -> AbstractContextManager[Usage]:
        """Counts what the device executes while the context is open."""
