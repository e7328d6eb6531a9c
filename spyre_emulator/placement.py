"""Where the buffers of a plan live: in the cores' scratchpads (LX), or in the pool of intermediates.

After torch-spyre's docs/source/compiler/scratchpad_planning.md and hbm_pool_planning.md. Scratchpad planning comes
first and is greedy: in order of steps, a buffer that every reader reads as its writer cut it, and whose share per core
fits between those that are live, stays on the cores from its writing to its last reading; there is no eviction, and
reuse of a dying operand's place is not modelled. Every other intermediate goes to the pool, first fit by live range;
a pool whose peak is beyond its segment is refused, in the words of the published pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from spyre_emulator import settings
from spyre_emulator.division import Division, divide, share
from spyre_emulator.dtypes import BYTES_IN_STICK
from spyre_emulator.nodes import operand_nodes
from spyre_emulator.propagation import Buffer, Layouts, Role, Source

Node = torch.fx.Node
PROGRAM_BYTES = 64 << 10
"""Reserved in each scratchpad for program and debugging."""


def usable_scratchpad() -> int:
    """Bytes per core that the front end may plan: what program and back end (``DXP_LX_FRAC_AVAIL``) leave."""
    free = (settings.current.lx_bytes - PROGRAM_BYTES) * (1 - settings.current.lx_back_end_share)
    return max(-(-int(free) // BYTES_IN_STICK) * BYTES_IN_STICK, 0)


class Place(NamedTuple):
    """Where one buffer lives."""

    where: str
    """``lx``, ``pool``, ``input``, ``output`` or ``device`` (an allocation of its own: a host operator uses it)."""
    bytes: int
    """Per core in ``lx``, on the whole device otherwise."""
    address: int | None = None
    """In the scratchpad or the pool."""
    reason: str = ""
    """Why it is not in the scratchpad."""


@dataclasses.dataclass
class Memory:
    """The memory plan of one graph."""

    places: dict[Buffer, Place] = dataclasses.field(default_factory=dict)
    divisions: dict[Node, Division] = dataclasses.field(default_factory=dict)
    working_sets: dict[Node, int] = dataclasses.field(default_factory=dict)
    """Bytes per core of operands and result of each device operator."""
    scratchpad_peak: int = 0
    """Bytes per core."""
    pool_peak: int = 0
    """Bytes in use at once."""
    pool_extent: int = 0
    """Bytes from the first to the last address; more than the peak where free blocks were too small."""

    def count(self, where: str) -> int:
        """Buffers that live there."""
        return sum(p.where == where for p in self.places.values())


class Blocks:
    """First-fit allocation of addresses."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.extent = self.used = self.peak = 0
        self._free: list[tuple[int, int]] = []
        self._held: list[tuple[int, int, int]] = []

    def release(self, step: int) -> None:
        """Free what nobody reads at `step` or later."""
        for last, address, size in [h for h in self._held if h[0] < step]:
            self._held.remove((last, address, size))
            self.used -= size
            self._give_back(address, size)

    def _give_back(self, address: int, size: int) -> None:
        self._free.append((address, size))
        self._free.sort()
        merged: list[tuple[int, int]] = []
        for start, length in self._free:
            if merged and merged[-1][0] + merged[-1][1] == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free = merged

    def take(self, size: int, last: int) -> int | None:
        """The address of `size` bytes held until step `last`; None beyond the limit."""
        for i, (address, length) in enumerate(self._free):
            if length >= size:
                self._free[i : i + 1] = [(address + size, length - size)] if length > size else []
                break
        else:
            address = self.extent
            if self.limit is not None and address + size > self.limit:
                return None
            self.extent += size
        self.used += size
        self.peak = max(self.peak, self.used)
        self._held.append((last, address, size))
        return address


class Reading(NamedTuple):
    """One read of a buffer."""

    step: int
    node: Node
    operand: int
    source: Source
    role: Role


class Planner:
    """Makes the `Memory` of a graph whose layouts are chosen."""

    def __init__(self, nodes: Sequence[Node], role: Callable[[Node], Role], layouts: Layouts) -> None:
        self.nodes = list(nodes)
        self.roles = {n: role(n) for n in self.nodes}
        self.layouts = layouts
        self.memory = Memory()
        self.readings: dict[Buffer, list[Reading]] = {}
        self.escaping: set[Buffer] = set()

    def run(self) -> Memory:
        """Plan; RuntimeError where the pool is too small."""
        for step, node in enumerate(self.nodes):
            self._note_reads(step, node)
            if self.roles[node] == "operator" and self.layouts.sources.get(node):
                self._divide(node)
        scratchpad, pool = Blocks(usable_scratchpad()), Blocks()
        for step, node in enumerate(self.nodes):
            scratchpad.release(step)
            pool.release(step)
            for source in self.layouts.sources.get(node, ()):
                if source.buffer.node is node:
                    self.memory.places[source.buffer] = self._place(source.buffer, scratchpad, pool)
            self._refuse_beyond_segment(pool)
        self.memory.scratchpad_peak, self.memory.pool_peak = scratchpad.peak, pool.peak
        self.memory.pool_extent = pool.extent
        return self.memory

    def _note_reads(self, step: int, node: Node) -> None:
        role = self.roles[node]
        if role == "view":
            return
        for i, read in enumerate(operand_nodes(node)):
            for source in self.layouts.sources.get(read, ()):
                if role == "output":
                    self.escaping.add(source.buffer)
                self.readings.setdefault(source.buffer, []).append(Reading(step, node, i, source, role))

    # ---- work division ---------------------------------------------------------------------------------

    def _divide(self, node: Node) -> None:
        asked = self.layouts.requirements[node]
        result = self.layouts.sources[node][0]
        stick = self.layouts.sticks[result.buffer]
        division = divide(asked, result.view, result.view.dimension(stick))
        self.memory.divisions[node] = division
        own = share(result.view, stick, {d: n for d, n in enumerate(division.splits) if n > 1})
        total = own
        for i, read in enumerate(operand_nodes(node)):
            known = self.layouts.sources.get(read)
            if not known:
                continue
            access, view = asked.accesses[i], known[0].view
            parts = {} if access is None else division.of_operand(access, view)
            size = share(view, self.layouts.sticks[known[0].buffer], parts)
            total += min(size, own) if access is None or access.at_random else size
        self.memory.working_sets[node] = total

    def _parts(self, node: Node, operand: int | None, view: Any) -> dict[int, int] | None:
        """How `node` cuts its result (None) or an operand, by host stride; None where it does not say."""
        division = self.memory.divisions.get(node)
        if division is None:
            return None
        if operand is None:
            parts = {d: n for d, n in enumerate(division.splits) if n > 1}
        else:
            access = self.layouts.requirements[node].accesses[operand]
            if access is None or None in access.dims:
                return None
            parts = division.of_operand(access, view)
        return {view.strides[d]: n for d, n in parts.items()}

    # ---- places ----------------------------------------------------------------------------------------

    def _place(self, buffer: Buffer, scratchpad: Blocks, pool: Blocks) -> Place:
        shape = self.layouts.shapes[buffer]
        whole = shape.device_bytes(self.layouts.sticks[buffer])
        role = self.roles[buffer.node]
        readings = self.readings.get(buffer, [])
        if role == "input":
            return Place("input", whole)
        if buffer in self.escaping:
            return Place("output", whole)
        if role == "host" or any(r.role in ("host", "none") for r in readings):
            return Place("device", whole, reason="a host operator uses it")
        if not readings:
            return Place("device", whole, reason="nothing reads it")
        last = max(r.step for r in readings)
        reason = self._barred(buffer, readings)
        if reason is None:
            parts = self._parts(buffer.node, None, shape) or {}
            size = share(shape, self.layouts.sticks[buffer], parts)
            address = scratchpad.take(size, last)
            if address is not None:
                return Place("lx", size, address)
            reason = f"{size} bytes per core do not fit"
        if not settings.current.hbm_pool_planning:
            return Place("device", whole, reason=reason)
        return Place("pool", whole, pool.take(whole, last), reason)

    def _barred(self, buffer: Buffer, readings: list[Reading]) -> str | None:
        """Why a buffer may not live in the scratchpad, whatever its size."""
        if not settings.current.lx_planning:
            return "scratchpad planning is off"
        division = self.memory.divisions.get(buffer.node)
        written = self._parts(buffer.node, None, self.layouts.shapes[buffer])
        if buffer.result or division is None or written is None:
            return "no single device operator writes it"
        if division.contracted > 1:
            return "partial sums of several cores"
        shape = self.layouts.shapes[buffer]
        for reading in readings:
            if reading.operand in self.layouts.rearranged.get(reading.node, {}):
                return "read by a restickify"
            if reading.source.view.numel != shape.numel or reading.source.view.offset != shape.offset:
                return "partial or offset read"
            if reading.role == "write":
                return "copied into a graph input"
            cores = self.memory.divisions[reading.node].cores if reading.node in self.memory.divisions else 0
            if cores != division.cores or self._parts(reading.node, reading.operand, reading.source.view) != written:
                return "core division mismatch"
        return None

    def _refuse_beyond_segment(self, pool: Blocks) -> None:
        segment = settings.current.intermediates_pool
        if pool.peak > segment:
            raise RuntimeError(
                f"HBM intermediate pool peak usage ({pool.peak} bytes, {pool.peak / 2**30:.2f} GB) exceeds "
                f"segment size ({segment} bytes, {segment / 2**30:.2f} GB)"
            )


def plan_memory(nodes: Sequence[Node], role: Callable[[Node], Role], layouts: Layouts) -> Memory:
    """The memory plan of `nodes` under `layouts`."""
    return Planner(nodes, role, layouts).run()
