"""Several cards: the process group backend ``spyreccl``, one process per card, carried by gloo between processes.

``torch.distributed.init_process_group("cpu:gloo,spyre:spyreccl")``, as on the real stack
(torch-spyre:docs/source/runtime/index.md): send, recv, broadcast, barrier, gather, all_gather, reduce and all_reduce
block and are implemented; asynchronous calls, scatter, reduce_scatter, all-to-all, all_gather_into_tensor and coalesced
all_reduce raise `SpyreCCLNotSupportedException`. Each rank's card is its own local ``spyre:0``.

Values travel as the numbers the device holds, so nothing is lost between cards. Reductions of 16-bit floats add in the
order of ranks and round after each addition; the order of the real ring is not public.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from spyre_emulator import private
from spyre_emulator.dtypes import DLFLOAT
from spyre_emulator.memory import shadow
from spyre_emulator.numerics import round_

Tensor = torch.Tensor
c10d: Any = distributed_c10d
NAME = "spyreccl"
ReceiveHook = Callable[[str, Tensor, Tensor], Tensor]
receive_hooks: list[ReceiveHook] = []
"""Called as ``hook(operation, values before, values received)`` for what arrives on a card: faults live here."""


class SpyreCCLNotSupportedException(RuntimeError):  # noqa: N818 - the real stack's name
    """The collective library of the real stack does not offer this."""


class _Finished(c10d.Work):  # type: ignore[misc]
    """The handle of a collective that ended before its call returned."""

    def __init__(self, result: list[Tensor]) -> None:
        super().__init__()
        self._future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> torch.futures.Future[list[Tensor]]:
        return self._future


def _is_on_device(tensors: Sequence[Tensor]) -> bool:
    return any(t.device.type == private.DEVICE_NAME for t in tensors)


def _values(tensor: Tensor) -> Tensor:
    """What the device holds, dense, as gloo can send it."""
    return shadow(tensor).contiguous()


def _receive(operation: str, tensor: Tensor, values: Tensor) -> None:
    host = shadow(tensor)
    for hook in receive_hooks:
        values = hook(operation, host, values)
    host.copy_(values.view(host.shape))


_REDUCTIONS: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {
    dist.ReduceOp.SUM: torch.add,
    dist.ReduceOp.AVG: torch.add,
    dist.ReduceOp.PRODUCT: torch.mul,
    dist.ReduceOp.MIN: torch.minimum,
    dist.ReduceOp.MAX: torch.maximum,
}


def reduced(parts: list[Tensor], operation: Any, *, half: bool) -> Tensor:
    kind = next((k for k in _REDUCTIONS if operation == k), None)
    if kind is None:
        name = next((n for n, k in dist.ReduceOp.RedOpType.__members__.items() if operation == k), "")
        raise SpyreCCLNotSupportedException(f"spyreccl does not support the reduction {name}")
    rounded: Callable[[Tensor], Tensor] = round_ if half else lambda t: t
    total = functools.reduce(lambda a, b: rounded(_REDUCTIONS[kind](a, b)), parts)
    return rounded(total / len(parts)) if kind == dist.ReduceOp.AVG else total


class SpyreCCL(c10d.ProcessGroup):  # type: ignore[misc]
    """The process group of one rank; tensors of the host go to gloo unchanged."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        if "LOCAL_WORLD_SIZE" not in os.environ:
            raise RuntimeError(
                "spyreccl: LOCAL_WORLD_SIZE is not set, and the collective library needs it to find its cards; "
                "start the processes with torchrun, or set it to the number of ranks on this host"
            )
        self._gloo: Any = c10d.ProcessGroupGloo(c10d.PrefixStore(f"{NAME}/", store), rank, size, timeout)
        self._register_backend(torch.device("cpu"), c10d.ProcessGroup.BackendType.GLOO, self._gloo)

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        """``spyreccl``."""
        return NAME

    def everyones(self, mine: Tensor) -> list[Tensor]:
        """The dense host tensor `mine` of every rank, in the order of ranks."""
        parts = [torch.empty_like(mine) for _ in range(self.size())]
        self._gloo.allgather([parts], [mine]).wait()
        return parts

    # ---- implemented ----------------------------------------------------------------------------------

    def send(self, tensors: list[Tensor], dst: int, tag: int = 0) -> Any:
        """Send to rank `dst` of this group."""
        if not _is_on_device(tensors):
            return self._gloo.send(tensors, dst, tag)
        self._gloo.send([_values(t) for t in tensors], dst, tag).wait()
        return _Finished(tensors)

    def recv(self, tensors: list[Tensor], src: int, tag: int = 0) -> Any:
        """Receive from rank `src` of this group."""
        if not _is_on_device(tensors):
            return self._gloo.recv(tensors, src, tag)
        for tensor in tensors:
            values = torch.empty_like(_values(tensor))
            self._gloo.recv([values], src, tag).wait()
            _receive("recv", tensor, values)
        return _Finished(tensors)

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Copy from the root to every rank."""
        opts = opts or c10d.BroadcastOptions()
        if not _is_on_device(tensors):
            return self._gloo.broadcast(tensors, opts)
        _refuse_async(opts, "broadcast")
        for tensor in tensors:
            values = _values(tensor).clone()
            self._gloo.broadcast([values], opts).wait()
            if opts.rootRank != self.rank():
                _receive("broadcast", tensor, values)
        return _Finished(tensors)

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Reduce over all ranks, to each of them."""
        opts = opts or c10d.AllreduceOptions()
        if not _is_on_device(tensors):
            return self._gloo.allreduce(tensors, opts)
        _refuse_async(opts, "allreduce")
        for tensor in tensors:
            total = reduced(self.everyones(_values(tensor)), opts.reduceOp, half=tensor.dtype in DLFLOAT)
            _receive("allreduce", tensor, total)
        return _Finished(tensors)

    def reduce(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Reduce over all ranks, to the root."""
        opts = opts or c10d.ReduceOptions()
        if not _is_on_device(tensors):
            return self._gloo.reduce(tensors, opts)
        _refuse_async(opts, "reduce")
        for tensor in tensors:
            parts = self.everyones(_values(tensor))
            if opts.rootRank == self.rank():
                _receive("reduce", tensor, reduced(parts, opts.reduceOp, half=tensor.dtype in DLFLOAT))
        return _Finished(tensors)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        """Every rank's tensor, to each rank."""
        opts = opts or c10d.AllgatherOptions()
        if not _is_on_device(inputs):
            return self._gloo.allgather(outputs, inputs, opts)
        _refuse_async(opts, "allgather")
        for places, tensor in zip(outputs, inputs, strict=True):
            for place, values in zip(places, self.everyones(_values(tensor)), strict=True):
                _receive("allgather", place, values)
        return _Finished([place for places in outputs for place in places])

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Any:
        """Every rank's tensor, to the root."""
        opts = opts or c10d.GatherOptions()
        if not _is_on_device(inputs):
            return self._gloo.gather(outputs, inputs, opts)
        _refuse_async(opts, "gather")
        gathered = [self.everyones(_values(tensor)) for tensor in inputs]
        if opts.rootRank == self.rank():
            for places, parts in zip(outputs, gathered, strict=True):
                for place, values in zip(places, parts, strict=True):
                    _receive("gather", place, values)
        return _Finished(inputs)

    def barrier(self, opts: Any = None) -> Any:
        """Wait for every rank."""
        self._gloo.barrier(c10d.BarrierOptions()).wait()
        return _Finished([])

    # ---- refused on the device ------------------------------------------------------------------------

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        """Refused for device tensors."""
        if _is_on_device(outputs):
            _refuse("scatter")
        return self._gloo.scatter(outputs, inputs, opts or c10d.ScatterOptions())

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Any:
        """Refused for device tensors."""
        if _is_on_device(outputs):
            _refuse("reduce_scatter")
        return self._gloo.reduce_scatter(outputs, inputs, opts or c10d.ReduceScatterOptions())

    def reduce_scatter_single(self, output: Tensor, values: Tensor, opts: Any = None) -> Any:
        """Refused for device tensors."""
        if _is_on_device([output]):
            _refuse("_reduce_scatter_base")
        return self._gloo._reduce_scatter_base(output, values, opts or c10d.ReduceScatterOptions())

    _reduce_scatter_base = reduce_scatter_single

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Any:
        """Refused for device tensors."""
        if _is_on_device(outputs):
            _refuse("alltoall")
        return self._gloo.alltoall(outputs, inputs, opts or c10d.AllToAllOptions())

    def all_to_all_single(
        self, output: Tensor, values: Tensor, output_sizes: list[int], input_sizes: list[int], opts: Any = None
    ) -> Any:
        """Refused for device tensors."""
        if _is_on_device([output]):
            _refuse("alltoall_base")
        return self._gloo.alltoall_base(output, values, output_sizes, input_sizes, opts or c10d.AllToAllOptions())

    alltoall_base = all_to_all_single

    def all_gather_single(self, output: Tensor, values: Tensor, opts: Any = None) -> Any:
        """Refused for device tensors."""
        if _is_on_device([output]):
            _refuse("_allgather_base")
        return self._gloo._allgather_base(output, values, opts or c10d.AllgatherOptions())

    _allgather_base = all_gather_single

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Any:
        """Refused for device tensors."""
        if _is_on_device(tensors):
            _refuse("allreduce_coalesced")
        return self._gloo.allreduce_coalesced(tensors, opts or c10d.AllreduceCoalescedOptions())


def _refuse(collective: str) -> NoReturn:
    raise SpyreCCLNotSupportedException(f"spyreccl does not support {collective}")


def _refuse_async(opts: Any, collective: str) -> None:
    if getattr(opts, "asyncOp", False):
        raise SpyreCCLNotSupportedException(f"spyreccl does not support asyncOp in {collective}: collectives block")


def register() -> None:
    """Make the backend name ``spyreccl`` known to torch.distributed, for the device ``spyre``."""
    c10d.Backend.register_backend(NAME, SpyreCCL, devices=[private.DEVICE_NAME])
