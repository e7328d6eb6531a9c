"""A forward in a thread of its own that stops at each module boundary: a coroutine over unmodified models."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

Tensor = torch.Tensor


@dataclass(frozen=True)
class Boundary:
    """A module is entered or left."""

    path: str
    kind: Literal["enter", "leave"]
    values: tuple[Any, ...]
    """Leaves of arguments or results; tensors among them."""


class Ended(Exception):  # noqa: N818 - the way out of an abandoned forward, not an error
    """The other side stopped: leave the forward."""


class Companion:
    """Runs ``forward(pause)`` in a thread; ``pause(boundary)`` there returns what `resume` is given here.

    Only one of the two threads runs at a time.
    """

    def __init__(self, forward: Callable[[Callable[[Boundary], Any]], object]) -> None:
        self._forward = forward
        self._turn = threading.Semaphore(0)
        self._other = threading.Semaphore(0)
        self._boundary: Boundary | None = None
        self._answer: Any = None
        self._failure: BaseException | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def next(self) -> Boundary | None:
        """Run on to the next boundary; None when the forward has ended. Raises what the forward raised."""
        self._turn.release()
        self._other.acquire()
        if self._failure is not None:
            raise self._failure
        return self._boundary

    def answer(self, value: Any) -> None:
        """What ``pause`` returns when the forward runs on."""
        self._answer = value

    def close(self) -> None:
        """Abandon the forward."""
        self._closing = True
        self._turn.release()
        self._thread.join()

    def _run(self) -> None:
        self._turn.acquire()
        if self._closing:
            return
        try:
            with torch.no_grad():
                self._forward(self._pause)
        except Ended:
            return
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for it
            self._failure = error
        self._boundary = None
        self._other.release()
        self._turn.acquire()

    def _pause(self, boundary: Boundary) -> Any:
        self._boundary = boundary
        self._other.release()
        self._turn.acquire()
        if self._closing:
            raise Ended
        return self._answer
