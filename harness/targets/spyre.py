"""The single door to the device `spyre`: torch_spyre where it is installed with a card, the emulator otherwise."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from harness.records import CompileFacts, DeviceUse, OpState, OpUse, TensorSpec
from harness.targets.base import Usage
from harness.targets.torch_device import DispatchUsage


class SpyreTarget:
    """IBM Spyre, real or emulated."""

    name = "spyre"

    def unavailable(self) -> str | None:
        """Why the device cannot be used; None when it can: the emulator is always at hand."""
        return None

    def device(self) -> torch.device:
        """``spyre:0``; loads the stack."""
        _stack()
        return torch.device("spyre", 0)

    def compile(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call`` through ``torch.compile`` with static shapes, as the real stack needs them."""
        _stack()
        compiled: Callable[..., Any] = torch.compile(call, dynamic=False)
        return compiled

    @contextmanager
    def recording(self) -> Iterator[Usage]:
        """Counts what the device executes."""
        stack = _stack()
        if not hasattr(stack, "record"):
            with DispatchUsage("spyre") as usage:
                yield usage
            return
        with stack.record() as recording:
            yield _EmulatorUsage(stack, recording)


class _EmulatorUsage:
    def __init__(self, stack: ModuleType, recording: Any) -> None:
        self._stack = stack
        self._recording = recording

    def facts(self) -> DeviceUse:
        uses = tuple(
            OpUse(
                op=variant.op,
                state=OpState(variant.state),
                count=count,
                operands=tuple(
                    TensorSpec(shape=tuple(shape), strides=tuple(strides), dtype=dtype)
                    for shape, strides, dtype in variant.operands
                ),
            )
            for variant, count in self._recording.ops.items()
        )
        report = self._recording.compiled
        facts = CompileFacts(**{name: getattr(report, name) for name in CompileFacts.model_fields})
        return DeviceUse(
            ops_on_device=self._recording.ops_on_device,
            fallbacks=self._recording.fallbacks,
            ops=tuple(sorted(uses, key=lambda use: (use.op, -use.count))),
            compiled=facts if facts.graphs else None,
            peak_memory=int(torch.spyre.max_memory_allocated()),  # type: ignore[attr-defined]
            configuration=self._stack.configuration(),
            replaced=self._replaced(uses),
        )

    def _replaced(self, uses: Iterable[OpUse]) -> dict[str, str]:
        """Ops that ran on the device in an equivalent form."""
        ran = sorted({use.op for use in uses if use.state in (OpState.SPYRE_ENABLED, OpState.SPYRE_FAILED)})
        return {op: kind for op in ran if (kind := self._stack.replacement(op))}


def _stack() -> ModuleType:
    """The module that provides the device."""
    if importlib.util.find_spec("torch_spyre") is not None:
        real = importlib.import_module("torch_spyre")
        if torch.spyre.is_available():  # type: ignore[attr-defined]
            return real
    return importlib.import_module("spyre_emulator")
