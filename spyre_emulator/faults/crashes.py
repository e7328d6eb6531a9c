"""The outcomes of crash entries: compile errors with the texts of the real stack, aborts and signals."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

from spyre_emulator.kernels import OpCall


class Unsupported(RuntimeError):  # noqa: N818 - the name is part of the message
    """torch_spyre's compile-time refusal, as Inductor wraps it."""


def fail_compilation(message: str) -> NoReturn:
    """Raise what ``torch.compile`` raises on the real stack, where eager operators are compiled too."""
    from torch._inductor.exc import InductorError

    raise InductorError(Unsupported(message), None)


def unsupported(what: str) -> Any:
    """An effect that fails compilation with the backend's usual sentence."""

    def effect(call: OpCall) -> NoReturn:
        fail_compilation(f"Spyre backend does not support: {what}")

    return effect


def failing(message: str) -> Any:
    """An effect that fails compilation with `message`."""

    def effect(call: OpCall) -> NoReturn:
        fail_compilation(message)

    return effect


def abort(call: OpCall) -> NoReturn:
    """End the process as ``dxp_standalone --bundle`` does: SIGABRT."""
    sys.stderr.write(f"dxp_standalone --bundle: assertion failed in {call.op}\n")
    sys.stderr.flush()
    os.abort()


def segmentation_fault() -> None:
    """End the process with SIGSEGV."""
    sys.stderr.flush()
    signal.raise_signal(signal.SIGSEGV)
