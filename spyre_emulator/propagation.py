"""Layout propagation: chooses the stick of every buffer in a graph, and with it where operands are restickified.

The passes of torch-spyre's docs/source/compiler/layout_optimization.md, on the graph of aten operators: candidates go
forward from the graph's inputs, whose layouts are given; then a beam of at most `BEAM_WIDTH` partial assignments goes
through the operators in order, where assignments that differ in buffers nobody reads any more are merged. An
operator's output takes a stick that one of its operands offers, unless the operator fixes it.

The cost of an assignment is device memory in bytes: what restickifying reads and writes, plus the padding lanes of
every computed buffer. (The published optimiser counts the elements of restickified operands alone; padding decides
between assignments that it calls equal.)
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from spyre_emulator import private
from spyre_emulator.nodes import is_on_device, operand_nodes, results_of, values_of
from spyre_emulator.requirements import Access, Requirement, requirement
from spyre_emulator.sticks import (
    SPARSE,
    Geometry,
    Restickify,
    default_stick,
    geometry,
    restickify,
    sees_whole_sticks,
)

aten = private.aten
Node = torch.fx.Node
Tensor = torch.Tensor
BEAM_WIDTH = 200
"""Partial assignments kept after each operator (torch-spyre's default)."""
UNREADABLE = -2
"""In place of a view's sticked dimension: it does not see whole sticks of its buffer."""
IMPOSSIBLE = 1 << 50
"""Cost of a restickify that the device has no operator for: taken only where nothing else is left."""

Role = str
"""What a node does to layouts: ``operator``, ``view``, ``write`` (into a buffer that exists), ``input``, ``output``,
``host`` (its results arrive by copy) or ``none``."""


class Buffer(NamedTuple):
    """One allocation: the node that makes it, as one of its results."""

    node: Node
    result: int
    """Which of its results."""


class Source(NamedTuple):
    """A value seen as a view of a buffer."""

    buffer: Buffer
    view: Geometry


@dataclasses.dataclass
class Layouts:
    """The chosen arrangement of a graph."""

    sticks: dict[Buffer, int] = dataclasses.field(default_factory=dict)
    """Host stride of the stick, per buffer on the device; `SPARSE` for one element per stick."""
    sources: dict[Node, list[Source]] = dataclasses.field(default_factory=dict)
    """Per node its results on the device, as views of buffers."""
    shapes: dict[Buffer, Geometry] = dataclasses.field(default_factory=dict)
    requirements: dict[Node, Requirement] = dataclasses.field(default_factory=dict)
    restickifies: dict[Node, tuple[Restickify, ...]] = dataclasses.field(default_factory=dict)
    """Per node the operands that are rearranged before it reads them."""
    rearranged: dict[Node, dict[int, Restickify]] = dataclasses.field(default_factory=dict)
    """The same by position among the node's operands."""
    cost: int = 0
    """Bytes, as the module says; impossible restickifies count `IMPOSSIBLE`."""

    def stick_of(self, node: Node, index: int = 0) -> int:
        """The stick of a result of `node`."""
        return self.sticks[self.sources[node][index].buffer]


class _State(NamedTuple):
    """A partial assignment: what it cost, and the choices as a chain."""

    cost: int
    chosen: tuple[Any, ...] | None
    """(previous chain, buffer, stick)."""


class Propagation:
    """The candidates of one graph and the search over them; `run` gives the `Layouts`."""

    def __init__(self, nodes: Sequence[Node], role: Callable[[Node], Role]) -> None:
        self.nodes = list(nodes)
        self.role = role
        self.layouts = Layouts()
        self.candidates: dict[Buffer, tuple[int, ...]] = {}
        self.operands: dict[Node, list[Source | None]] = {}
        self.last_read: dict[Buffer, int] = {}
        self._known: dict[tuple[Node, int, int, int | None], Restickify | None] = {}

    def run(self) -> Layouts:
        """Choose."""
        for position, node in enumerate(self.nodes):
            self._enter(node)
            for source in self.operands.get(node, ()):
                if source is not None:
                    self.last_read[source.buffer] = position
        self._search()
        for node in self.operands:
            self._settle(node)
        return self.layouts

    # ---- forward: buffers, views, candidates -----------------------------------------------------------

    def _enter(self, node: Node) -> None:
        role = self.role(node)
        values = results_of(node)
        if role == "view":
            self.layouts.sources[node] = self._views(node, values)
            return
        shapes = [geometry(v) for v in values if is_on_device(v)]
        if role == "operator":
            self.operands[node] = [self._source(v) for v in operand_nodes(node)]
            self._operator(node, shapes)
        elif role == "write":  # into a buffer that exists: its layout stays
            target, source = (self._source(a) for a in node.args[:2])
            self.layouts.sources[node] = [target] if target is not None else []
            if target is not None and source is not None:
                self.operands[node] = [source]
                self.layouts.requirements[node] = requirement(node.target, (), [source.view], target.view)
        elif role in ("input", "host"):
            self._buffers(node, shapes, [(default_stick(s),) for s in shapes])

    def _views(self, node: Node, values: list[Any]) -> list[Source]:
        if node.target is operator.getitem:
            origin: Any = node.args[0]
            known = self.layouts.sources.get(origin, [])
            index = int(node.args[1])  # type: ignore[arg-type]
            return known[index : index + 1]
        base = self._source(node.args[0])
        return [] if base is None else [Source(base.buffer, geometry(v)) for v in values if is_on_device(v)]

    def _source(self, value: Any) -> Source | None:
        known = self.layouts.sources.get(value) if isinstance(value, Node) else None
        return known[0] if known else None

    def _buffers(self, node: Node, shapes: list[Geometry], candidates: list[tuple[int, ...]]) -> None:
        sources = []
        for i, (shape, offered) in enumerate(zip(shapes, candidates, strict=True)):
            buffer = Buffer(node, i)
            self.candidates[buffer] = offered
            self.layouts.shapes[buffer] = shape
            sources.append(Source(buffer, shape))
        self.layouts.sources[node] = sources

    def _operator(self, node: Node, shapes: list[Geometry]) -> None:
        if not shapes:
            return
        result, *others = shapes
        views = [s.view for s in self.operands[node] if s is not None]
        if len(views) != len(self.operands[node]):  # an operand of the host's
            views = [geometry(v.meta["val"]) for v in operand_nodes(node)]
        asked = requirement(node.target, tuple(values_of(node.args)), views, result)
        self.layouts.requirements[node] = asked
        offered = self._offered(node, asked, result)
        self._buffers(node, shapes, [offered, *((default_stick(s),) for s in others)])

    def _offered(self, node: Node, asked: Requirement, result: Geometry) -> tuple[int, ...]:
        """Sticks for a result: the fixed one, or those that need no restickify of one operand at least."""
        dims = [d for d in reversed(range(len(result.shape))) if result.shape[d] > 1 and d != asked.barred]
        if asked.fixed_result is not None:
            fixed = asked.fixed_result
            return (result.strides[fixed] if result.shape[fixed] > 1 else SPARSE,)
        reads = [
            (a, s) for a, s in zip(asked.accesses, self.operands[node], strict=True) if a is not None and s is not None
        ]
        free = [
            d for d in [*dims, None]
            if any(self._is_free(source, access.acceptable(source.view, d)) for access, source in reads)
        ] if reads else dims  # fmt: skip
        if not asked.stick_reduction:
            free = [d for d in free if d is not None]
        sticks = [SPARSE if d is None else result.strides[d] for d in free]
        return tuple(dict.fromkeys(sticks)) or ((default_stick(result),) if not dims else (result.strides[dims[0]],))

    def _is_free(self, source: Source, acceptable: tuple[int | None, ...] | None) -> bool:
        if acceptable is None:
            return False  # read in any arrangement: no offer either
        return any(self._lies(source, stick) in acceptable for stick in self.candidates[source.buffer])

    def _lies(self, source: Source, stick: int) -> int | None:
        """The view's dimension along `stick`, None for one element per stick, or `UNREADABLE`."""
        if not sees_whole_sticks(source.view, self.layouts.shapes[source.buffer], stick):
            return UNREADABLE
        return source.view.dimension(stick)

    # ---- the beam --------------------------------------------------------------------------------------

    def _search(self) -> None:
        open_choices = {b for b, offered in self.candidates.items() if len(offered) > 1}
        self.layouts.sticks = {b: offered[0] for b, offered in self.candidates.items() if len(offered) == 1}
        states: dict[tuple[tuple[Buffer, int], ...], _State] = {(): _State(0, None)}
        for position, node in enumerate(self.nodes):
            made = [s.buffer for s in self.layouts.sources.get(node, ()) if s.buffer.node is node]
            undecided = [b for b in made if b in open_choices]
            reads = [s.buffer for s in self.operands.get(node, ()) if s is not None and s.buffer in open_choices]
            if undecided or reads:
                states = self._advanced(states, position, node, undecided)
            elif node in self.operands:
                cost = self._cost(node, {})
                states = {k: s._replace(cost=s.cost + cost) for k, s in states.items()}
        best = min(states.values(), key=lambda s: s.cost)
        self.layouts.cost = best.cost
        chain = best.chosen
        while chain is not None:
            chain, buffer, stick = chain
            self.layouts.sticks[buffer] = stick

    def _advanced(self, states: Any, position: int, node: Node, undecided: list[Buffer]) -> Any:
        """Each state once per stick of the node's result, merged where only dead buffers differ, trimmed."""
        result: dict[Any, _State] = {}
        for key, state in states.items():
            known = dict(key)
            options = self.candidates[undecided[0]] if undecided else (None,)
            for stick in options:
                chosen, chain = known, state.chosen
                if stick is not None:
                    chosen = {**known, undecided[0]: stick}
                    chain = (chain, undecided[0], stick)
                cost = state.cost + self._cost(node, chosen)
                live = tuple((b, s) for b, s in chosen.items() if self.last_read.get(b, -1) > position)
                if live not in result or cost < result[live].cost:
                    result[live] = _State(cost, chain)
        kept = sorted(result.items(), key=lambda item: item[1].cost)[:BEAM_WIDTH]
        return dict(kept)

    def _cost(self, node: Node, chosen: dict[Buffer, int]) -> int:
        padding = 0
        for source in self.layouts.sources.get(node, ()):
            if source.buffer.node is node:
                padding += source.view.padded_bytes(self._stick(source.buffer, chosen))
        moved = self._rearranged(node, chosen).values()
        return padding + sum(r.bytes if r.supported else IMPOSSIBLE for r in moved)

    def _stick(self, buffer: Buffer, chosen: dict[Buffer, int]) -> int:
        stick = chosen.get(buffer)
        return self.layouts.sticks[buffer] if stick is None else stick

    def _rearranged(self, node: Node, chosen: dict[Buffer, int]) -> dict[int, Restickify]:
        """The operands of `node` that have to be rearranged under an assignment, by position."""
        asked = self.layouts.requirements.get(node)
        results = self.layouts.sources.get(node)
        if asked is None or not results:
            return {}
        result = results[0]
        result_dim = result.view.dimension(self._stick(result.buffer, chosen))
        found: dict[int, Restickify] = {}
        for i, source in enumerate(self.operands[node]):
            if source is not None:
                key = (node, i, self._stick(source.buffer, chosen), result_dim)
                if key not in self._known:
                    self._known[key] = self._rearrangement(asked.accesses[i], source, key[2], result_dim)
                rearrangement = self._known[key]
                if rearrangement is not None:
                    found[i] = rearrangement
        return found

    def _rearrangement(
        self, access: Access | None, source: Source, stick: int, result_dim: int | None
    ) -> Restickify | None:
        """What has to be done to one operand that lies along `stick`; None where it is right as it is."""
        if access is None or source.view.numel == 0:
            return None
        acceptable = access.acceptable(source.view, result_dim)
        lies = self._lies(source, stick)
        if acceptable is None or lies in acceptable:
            return None
        return restickify(source.view, stick, acceptable[0], lies != UNREADABLE)

    def _settle(self, node: Node) -> None:
        rearranged = self._rearranged(node, {})
        if rearranged:
            self.layouts.rearranged[node] = rearranged
            self.layouts.restickifies[node] = tuple(rearranged.values())


def propagate(nodes: Sequence[Node], role: Callable[[Node], Role]) -> Layouts:
    """The layouts of a graph's `nodes`; ``role(node)`` tells what a node does to layouts."""
    return Propagation(nodes, role).run()
