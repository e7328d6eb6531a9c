"""The error that each module adds by itself: three forwards in step, with the reference's values at every boundary."""

from __future__ import annotations

import heapq
import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from harness.localize.boundaries import is_leaf, watched
from harness.localize.companion import Boundary, Companion
from harness.localize.control import skeleton
from harness.localize.geometry import clamped, like
from harness.localize.numbers import numbers
from harness.records import ModuleError, ModuleEvidence, OutputComparison

Tensor = torch.Tensor


class Forward(Protocol):
    """Runs the case's question on a model: the reference, its weightless control, or the candidate."""

    def __call__(self, model: nn.Module) -> object: ...


class Compare(Protocol):
    """Compares one tensor of candidate and control with the reference's."""

    def __call__(self, name: str, reference: Tensor, candidate: Tensor, control: Tensor | None) -> OutputComparison: ...


KEPT = 8
"""Full comparisons kept per forward: those of the largest ratios, and the first without a ratio."""


NEAR_TIES = 0.05
"""Share of integers that may differ before they count as wrong: positions and indices are right or all wrong,
expert choices differ at near ties (torch-spyre#4639)."""


@dataclass(frozen=True)
class Taken:
    """A forward taken apart."""

    evidence: ModuleEvidence
    worst: tuple[OutputComparison, ...]
    """Full comparisons of the worst stretches, named ``module:<name>[, call <n>][, tensor <n>]``, each once."""


@dataclass(frozen=True)
class Inspect:
    """A mode that is on while one call of a module runs ops of its own, and off inside its children."""

    module: str
    call: int
    mode: TorchDispatchMode


class OutOfStep(Exception):  # noqa: N818 - turned into a note
    """The sides do not run the same modules in the same order."""


@dataclass(frozen=True)
class _Given:
    """What stands for one tensor of the reference on one side."""

    version: int
    """Of the reference's tensor: it may be written to later."""
    stand_in: Tensor
    own: weakref.ref[Tensor]
    """This side's own tensor, which was compared already: a parent hands the same one to each child."""
    own_version: int


class _Side:
    """What the candidate or the control has been given in place of the reference's tensors."""

    def __init__(self) -> None:
        self._given = WeakIdKeyDictionary()

    def known(self, reference: Tensor, own: Tensor) -> bool:
        """Whether this side's tensor is the stand-in, or was met before, and neither was written to since."""
        found: _Given | None = self._given.get(reference)  # type: ignore[no-untyped-call]
        if found is None or found.version != reference._version:
            return False
        return own is found.stand_in or (own is found.own() and own._version == found.own_version)

    def give(self, reference: Tensor, own: Tensor) -> Tensor:
        """The reference's values in the dtype, place and layout of this side's own tensor."""
        found: _Given | None = self._given.get(reference)  # type: ignore[no-untyped-call]
        if found is not None and found.version == reference._version:
            known = found.stand_in
            if (known.dtype, known.stride()) == (own.dtype, own.stride()):
                return known
        made = like(own, reference)
        self._given[reference] = _Given(reference._version, made, weakref.ref(own), own._version)
        return made


def modules(
    reference: nn.Module,
    candidate: nn.Module,
    forward: Forward,
    compare: Compare,
    *,
    floor: float,
    seconds: float | None = None,
    inspect: Inspect | None = None,
) -> Taken:
    """Return the own error of every module, and of the ops between modules, in order of execution.

    All sides run ``forward``. At each boundary of a module the candidate's and the control's tensors are
    compared with the reference's and then replaced by them (in the side's own dtype and layout), so an error
    counts where it is made and nowhere else. Nothing is kept: the sides stand at the same boundary, and the
    control borrows the reference's weights op by op.

    ``floor`` is the relative error that the control's format costs at least. After ``seconds`` the rest is
    left out, with a note. With ``inspect`` the walk ends when that module has been left.
    """
    walk = _Walk(compare, floor, None if seconds is None else time.monotonic() + seconds, inspect)
    began = time.monotonic()
    shadow = skeleton(reference, candidate)
    oracle = Companion(lambda pause: _forward(reference, forward, pause))
    control = Companion(lambda pause: _forward(shadow, forward, pause))
    skipped = None
    try:
        with torch.no_grad(), watched(candidate, walk.pause_for(candidate, oracle, control)):
            forward(candidate)
    except OutOfStep as stop:
        skipped = str(stop)
    finally:
        walk.end()
        control.close()
        oracle.close()
    evidence = ModuleEvidence(
        errors=tuple(walk.errors),
        forwards=walk.calls[""],
        compared=len(walk.errors),
        skipped=skipped,
        seconds=time.monotonic() - began,
    )
    return Taken(evidence, walk.worst())


def _forward(model: nn.Module, forward: Forward, pause: Any) -> None:
    with watched(model, pause):
        forward(model)


class _Walk:
    """The state of three forwards in step."""

    def __init__(self, compare: Compare, floor: float, deadline: float | None, inspect: Inspect | None) -> None:
        self.errors: list[ModuleError] = []
        self.calls: Counter[str] = Counter()
        self._tensors: Counter[tuple[str, int]] = Counter()
        self._compare = compare
        self._floor = floor
        self._worst: list[tuple[float, int, OutputComparison]] = []
        self._odd: list[OutputComparison] = []
        self._deadline = deadline
        self._inspect = inspect
        self._inspecting = False
        self._open: list[tuple[str, int]] = []
        self._sides = (_Side(), _Side())

    def pause_for(self, candidate: nn.Module, oracle: Companion, control: Companion) -> Callable[[Boundary], Any]:
        """What the candidate's boundaries are given to."""
        childless = {path for path, module in candidate.named_modules() if is_leaf(module)}

        def pause(own: Boundary) -> list[Any]:
            self._inspection(on=False)
            if self._deadline is not None and time.monotonic() > self._deadline:
                raise OutOfStep(f"the time ran out at {own.path or 'the model'}: the rest was not taken apart")
            reference, other = oracle.next(), control.next()
            _same_place(own, reference, other)
            assert reference is not None
            assert other is not None
            name = self._enter_or_leave(own, childless)
            mine, theirs = [], []
            for item in zip(reference.values, own.values, other.values, strict=True):
                if all(isinstance(value, Tensor) for value in item):
                    given = self._meet(name, *item)
                    mine.append(given[0])
                    theirs.append(given[1])
                else:
                    mine.append(item[1])
                    theirs.append(item[2])
            control.answer(theirs)
            self._inspection(on=True)
            return mine

        return pause

    def _inspection(self, *, on: bool) -> None:
        """Switch the mode on where the wanted module goes on with its own ops; end the walk where it has been left."""
        if self._inspect is None:
            return
        if self._inspecting and not on:
            self._inspect.mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._inspecting = False
        wanted = (self._inspect.module, self._inspect.call)
        if on and self._open and self._open[-1] == wanted:
            self._inspect.mode.__enter__()  # type: ignore[no-untyped-call]
            self._inspecting = True
        elif on and self.calls[wanted[0]] > wanted[1] and wanted not in self._open:
            raise OutOfStep(f"{wanted[0] or 'the model'} was inspected")

    def end(self) -> None:
        """Switch the mode off, whichever way the walk ended."""
        self._inspection(on=False)

    def _enter_or_leave(self, boundary: Boundary, childless: set[str]) -> tuple[str, str, str, int] | None:
        """Name, module, part and call of the stretch that ends at this boundary; None for what comes from outside."""
        path = boundary.path
        if boundary.kind == "enter":
            owner = self._open[-1] if self._open else None
            self._open.append((path, self.calls[path]))
            self.calls[path] += 1
            if owner is None:
                return None
            child = path.removeprefix(f"{owner[0]}." if owner[0] else "")
            return (f"{owner[0] or 'model'} (into {child})", owner[0], "between", owner[1])
        path, call = self._open.pop()
        if path in childless:
            return (path, path, "module", call)
        return (f"{path or 'model'} (to its end)", path, "between", call)

    def _meet(
        self, where: tuple[str, str, str, int] | None, reference: Tensor, candidate: Tensor, control: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compare what is new and return what both sides go on with."""
        mine, theirs = self._sides
        if where is not None and not mine.known(reference, candidate):
            self._measure(where, reference, candidate, control)
        if candidate.shape != reference.shape or control.shape != reference.shape:
            raise OutOfStep(f"{where[0] if where else 'the model'}: the shapes of the sides differ")
        return mine.give(reference, candidate), theirs.give(reference, control)

    def _measure(self, where: tuple[str, str, str, int], reference: Tensor, candidate: Tensor, control: Tensor) -> None:
        name, module, part, call = where
        found = candidate.detach().cpu()
        expected = clamped(reference, found.dtype) if found.is_floating_point() else reference
        error = ModuleError(
            name=name,
            module=module,
            part="module" if part == "module" else "between",
            call=call,
            shape=tuple(reference.shape),
            **numbers(expected, found, control),
        )
        self.errors.append(error)
        unique = self._unique(name, call)
        self._keep(error, lambda: self._compare(f"module:{unique}", expected, found, control))

    def _unique(self, name: str, call: int) -> str:
        """A name of its own for a tensor: a layer may be shared and called again, and give several tensors."""
        self._tensors[name, call] += 1
        number = self._tensors[name, call]
        later = f", call {call}" if call else ""
        return f"{name}{later}{f', tensor {number}' if number > 1 else ''}"

    def _keep(self, error: ModuleError, full: Callable[[], OutputComparison]) -> None:
        """Make the full comparison of a stretch that is among the worst so far."""
        ratio = error.ratio(self._floor)
        if ratio is None or error.nonfinite or error.mismatch:
            if len(self._odd) < KEPT and out_of_proportion(error, self._floor, 0):
                self._odd.append(full())
        elif len(self._worst) < KEPT:
            heapq.heappush(self._worst, (ratio, len(self.errors), full()))
        elif ratio > self._worst[0][0]:
            heapq.heapreplace(self._worst, (ratio, len(self.errors), full()))

    def worst(self) -> tuple[OutputComparison, ...]:
        """The full comparisons that were kept, the worst first."""
        return (*self._odd, *(full for _, _, full in sorted(self._worst, key=lambda kept: -kept[0])))


def _same_place(own: Boundary, *others: Boundary | None) -> None:
    """Raise OutOfStep unless all sides stand at the same boundary."""
    for other in others:
        if other is None or (own.path, own.kind, len(own.values)) != (other.path, other.kind, len(other.values)):
            there = "its end" if other is None else f"{other.kind} {other.path}"
            raise OutOfStep(f"the sides run different modules: {own.kind} {own.path} against {there}")


def out_of_proportion(error: ModuleError, floor: float, limit: float) -> bool:
    """Whether a stretch's own error is above ``limit`` times the control's and the format's."""
    if error.mismatch or error.nonfinite:
        return True
    if error.unequal is not None:
        # Which expert a router picks may hang on a near tie; a mask may not.
        return error.unequal > (0 if error.dtype == "bool" else NEAR_TIES * math.prod(error.shape))
    ratio = error.ratio(floor)
    if ratio is None:
        return bool(error.relative_l2)
    return ratio > limit


def wrong(evidence: ModuleEvidence, floor: float, limit: float) -> Iterator[ModuleError]:
    """Yield the stretches out of proportion, in order of execution."""
    return (error for error in evidence.errors if out_of_proportion(error, floor, limit))
