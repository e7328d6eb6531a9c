"""The only module that touches private PyTorch calls; a contract test guards each of them at import.

Everything else in the package uses the names defined here, so a new torch release is one file's work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils import _python_dispatch, backend_registration

DEVICE_NAME = "spyre"
TESTED_TORCH = "2.13"

aten = torch.ops.aten
OpOverload = torch._ops.OpOverload


class ContractError(ImportError):
    """This torch lacks, or changed, a private call that the emulator rests on."""


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ContractError(
            f"spyre_emulator does not work with torch {torch.__version__}: {what}; "
            f"it was tested with torch {TESTED_TORCH}.x, install that"
        )


_require(hasattr(torch._C, "_acc"), "torch._C._acc (Python accelerator registration) is missing")
for _name in ("create_empty_tensor", "register_python_privateuseone_hook", "DeviceGuard", "PrivateUse1Hooks"):
    _require(hasattr(torch._C._acc, _name), f"torch._C._acc.{_name} is missing")
for _name in (
    "_construct_storage_from_data_pointer",
    "_dispatch_get_all_op_names",
    "_dispatch_has_kernel_for_dispatch_key",
    "_ExcludeDispatchKeyGuard",
    "DispatchKeySet",
):
    _require(hasattr(torch._C, _name), f"torch._C.{_name} is missing")
_require(
    hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    "torch.utils.backend_registration._setup_privateuseone_for_python_backend is missing",
)
_require(hasattr(torch, "_TorchCompileInductorWrapper"), "torch._TorchCompileInductorWrapper is missing")

_key: Any = torch._C.DispatchKey
_CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
_AUTOCAST_KEYS = torch._C.DispatchKeySet(_key.AutocastPrivateUse1)
_construct_storage = torch._C._construct_storage_from_data_pointer
_create_empty = torch._C._acc.create_empty_tensor
_set_redispatch = aten.set_.source_Storage_storage_offset.redispatch
_as_strided_redispatch = aten.as_strided.default.redispatch
_libraries: list[Any] = []
_library: Any = torch.library.Library


class DeviceModuleBase(backend_registration._DummyBackendModule):  # type: ignore[misc, unused-ignore]
    """Base of the ``torch.spyre`` module object; brings what torch itself asks a backend module for."""


def register_device(module: DeviceModuleBase) -> torch.device:
    """The device ``spyre:0``, after registering the name and `module` with PyTorch (once per process)."""
    taken = torch._C._get_privateuse1_backend_name()
    _require(taken == "privateuseone", f"another backend already took PrivateUse1 as {taken!r}")
    backend_registration._setup_privateuseone_for_python_backend(DEVICE_NAME, backend_module=module)
    device = torch.device(DEVICE_NAME, 0)
    _check_storage_contract(device)
    return device


def _check_storage_contract(device: torch.device) -> None:
    host = torch.arange(6, dtype=torch.float32, device="cpu")
    storage = make_storage(host.untyped_storage(), device, 24)
    storage.contract = "kept"
    tensor = make_tensor(storage, 1, (2, 2), (2, 1), torch.float32)
    view = as_strided(tensor, (2,), (2,), 2)
    del tensor, storage
    _require(view.device == device and view.stride() == (2,), "strided views of a Python backend's storage fail")
    kept = getattr(view.untyped_storage(), "contract", None)
    _require(kept == "kept", "Python attributes of a storage do not live as long as the storage")


def make_storage(host: torch.UntypedStorage, device: torch.device, nbytes: int) -> Any:
    """A non-owning storage on `device` at the address of `host`; the caller keeps `host` alive."""
    return _construct_storage(host.data_ptr(), device, nbytes)


def make_tensor(
    storage: Any, offset: int, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """A device tensor of the given geometry (in elements) over `storage`."""
    result: torch.Tensor = _set_redispatch(_CPU_KEYS, _create_empty((0,), dtype), storage, offset, shape, stride)
    return result


def set_storage(tensor: torch.Tensor, storage: Any, offset: int, shape: Any, stride: Any) -> torch.Tensor:
    """`tensor` itself, now over `storage` with the given geometry."""
    result: torch.Tensor = _set_redispatch(_CPU_KEYS, tensor, storage, offset, shape, stride)
    return result


def as_strided(tensor: torch.Tensor, shape: Any, stride: Any, offset: int | None) -> torch.Tensor:
    """A view of a device tensor; nothing is copied."""
    result: torch.Tensor = _as_strided_redispatch(_CPU_KEYS, tensor, shape, stride, offset)
    return result


def cpu_kernel(op: OpOverload) -> Callable[..., Any]:
    """The CPU kernel of an operator that does not look at the device (views), callable with device tensors."""
    redispatch = op.redispatch

    def call(*args: Any, **kwargs: Any) -> Any:
        return redispatch(_CPU_KEYS, *args, **kwargs)

    return call


def registers_for(namespace: str, key: str) -> Callable[[str, Callable[..., Any]], None]:
    """A function ``(operator name, kernel)`` that registers kernels of `namespace` under dispatch key `key`."""
    library: Any = _library(namespace, "IMPL")
    _libraries.append(library)

    def register(name: str, kernel: Callable[..., Any]) -> None:
        library.impl(name, kernel, key)

    return register


def temporary_kernel(name: str, kernel: Callable[..., Any]) -> Callable[[], None]:
    """Register `kernel` for aten operator `name` on the device; call the result to take it back."""
    library: Any = _library("aten", "IMPL")
    library.impl(name, kernel, "PrivateUse1")

    def remove() -> None:
        library._destroy()

    return remove


def register_fallback(kernel: Callable[..., Any], key: str) -> None:
    """Make `kernel`, called as ``kernel(op, *args, **kwargs)``, serve every operator without one under `key`."""
    library: Any = _library("_", "IMPL")
    _libraries.append(library)
    library.fallback(kernel, key)


def fall_through() -> Callable[..., Any]:
    """The kernel that hands on to the next dispatch key."""
    return torch.library.fallthrough_kernel


def operators() -> Iterator[tuple[str, OpOverload]]:
    """Every aten operator as (qualified name without ``aten::``, overload)."""
    for qualified in torch._C._dispatch_get_all_op_names():
        if not qualified.startswith("aten::"):
            continue
        name, _, overload = qualified[6:].partition(".")
        packet = getattr(aten, name, None)
        found = getattr(packet, overload or "default", None)
        if isinstance(found, OpOverload):
            yield qualified[6:], found


def has_kernel(name: str, key: str) -> bool:
    """Whether aten operator `name` has its own kernel under dispatch key `key`."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key))


def without_autocast() -> AbstractContextManager[Any]:
    """A context in which the device's autocast kernels are skipped."""
    guard: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(_AUTOCAST_KEYS)
    return guard


def without_modes() -> AbstractContextManager[Any]:
    """A context without active dispatch modes, for work on real tensors while Dynamo traces with fake ones."""
    context: AbstractContextManager[Any] = _python_dispatch._disable_current_modes()
    return context


def is_tracing() -> bool:
    """Whether a dispatch mode (tracing with fake tensors) is active."""
    return bool(_python_dispatch._get_current_dispatch_mode_stack())


def override_composite(op: OpOverload, wants: Callable[..., bool], kernel: Callable[..., Any]) -> None:
    """While tracing, decompose `op` by `kernel` where ``wants(*args)`` holds, as before elsewhere."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    original: Any = op._op_dk

    def decompose(*args: Any, **kwargs: Any) -> Any:
        if wants(*args, **kwargs):
            return kernel(*args, **kwargs)
        return original(key, *args, **kwargs)

    register: Any = op.py_impl(key)
    register(decompose)


def route_inductor(wants: Callable[[Any, Any], bool], backend: Callable[..., Any]) -> None:
    """Send graphs of the default ``torch.compile`` backend for which ``wants(graph, inputs)`` to `backend`."""
    wrapper: Any = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    def call(self: Any, graph: Any, inputs: Any, **kwargs: Any) -> Any:
        if wants(graph, inputs):
            return backend(graph, inputs)
        return original(self, graph, inputs, **kwargs)

    wrapper.__call__ = call


def patch_storage_constructor(allocate: Callable[[int], Any], check: Callable[[torch.device], None]) -> None:
    """Let ``torch.UntypedStorage(n, device="spyre")`` come from `allocate`; unpatched it ends the process."""
    storage_class: Any = torch.UntypedStorage
    original = storage_class.__new__

    def new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None:
            return original(cls, *args, **kwargs)
        device = torch.device(device)
        if device.type != DEVICE_NAME:
            return original(cls, *args, device=device, **kwargs)
        check(device)
        size = args[0] if args else 0
        return allocate(size if isinstance(size, int) else len(size))

    storage_class.__new__ = staticmethod(new)
    original_new, original_write = storage_class.new, storage_class._write_file
    original_read = storage_class._set_from_file

    def empty_like(self: Any) -> Any:
        return allocate(0) if self.device.type == DEVICE_NAME else original_new(self)

    def write_file(self: Any, *args: Any) -> Any:  # the original reads the address of the storage, not its values
        return original_write(self.cpu() if self.device.type == DEVICE_NAME else self, *args)

    storage_class.new = empty_like

    def set_from_file(self: Any, *args: Any) -> Any:
        if self.device.type != DEVICE_NAME:
            return original_read(self, *args)
        host = storage_class(self.nbytes())
        original_read(host, *args)
        return self.copy_(host)

    storage_class._write_file = write_file
    storage_class._set_from_file = set_from_file


def patch_generator(check: Callable[[torch.device], None]) -> None:
    """Let ``torch.Generator("spyre")`` be a CPU generator: random numbers of this device come from the host."""
    original: Any = torch.Generator

    class AnyGenerator(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

    class Generator(original, metaclass=AnyGenerator):  # type: ignore[misc]
        """A random number generator; for the device ``spyre`` one of the host."""

        def __new__(cls, device: Any = "cpu") -> Any:
            device = torch.device(device)
            if device.type == DEVICE_NAME:
                check(device)
                device = torch.device("cpu")
            return original.__new__(cls, device=device)

    Generator.__name__ = Generator.__qualname__ = "Generator"
    torch.Generator = Generator  # type: ignore[misc]


def process_group(name: str) -> Any:
    """The process group that functional collectives call `name`."""
    from torch.distributed import distributed_c10d

    c10d: Any = distributed_c10d
    return c10d._resolve_process_group(name)


def graph_breaks() -> int:
    """Dynamo's process-wide count of graph breaks; zero while Dynamo was never imported."""
    utils = sys.modules.get("torch._dynamo.utils")
    return 0 if utils is None else sum(utils.counters["graph_break"].values())


def is_recompilation() -> bool:
    """Whether the graph being compiled replaces an earlier one of the same code whose guards failed."""
    compile_id = torch._guards.CompileContext.current_compile_id()
    return compile_id is not None and (compile_id.frame_compile_id or 0) > 0


def aot(graph: Any, example_inputs: Any, build: Callable[..., Any]) -> Any:
    """`graph` traced to aten operators without decomposing them further, compiled by `build`."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(
        fw_compiler=build, inference_compiler=build, decompositions={}, keep_inference_input_mutations=True
    )(graph, example_inputs)


def register_dynamo(backend: Callable[..., Any]) -> None:
    """Register `backend` under the device's name, and the device's interface with Dynamo."""
    from torch._dynamo import register_backend
    from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device

    class SpyreInterface(DeviceInterface):  # type: ignore[misc, unused-ignore]
        """What Dynamo asks about the device."""

        class Event:
            """No events: launches end before the call returns."""

        class device:  # noqa: N801 - Dynamo looks for this name
            """Context manager that selects the one card."""

            def __init__(self, device: Any) -> None: ...

            def __enter__(self) -> None: ...

            def __exit__(self, *_: object) -> None: ...

        @staticmethod
        def is_available() -> bool:
            return True

        @staticmethod
        def current_device() -> int:
            return 0

        @staticmethod
        def set_device(device: Any) -> None: ...

        @staticmethod
        def device_count() -> int:
            return 1

        @staticmethod
        def synchronize(device: Any = None) -> None: ...

        @staticmethod
        def get_compute_capability(device: Any = None) -> int:
            return 0

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return True

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return 0

    register_interface_for_device(DEVICE_NAME, SpyreInterface)
    register_backend(backend, name=DEVICE_NAME)


def inductor_error(inner: Exception) -> Exception:
    """`inner` as the compiler of the published stack raises it."""
    from torch._inductor.exc import InductorError

    return InductorError(inner, None)


def size_hint(dim: Any) -> int:
    """The size that `dim` had when it was traced, without guarding on it."""
    return int(dim.node.hint) if isinstance(dim, torch.SymInt) else int(dim)


def define(namespace: str, schema: str) -> None:
    """Define a new operator."""
    library: Any = _library(namespace, "FRAGMENT")
    _libraries.append(library)
    library.define(schema)


def composite(op: OpOverload) -> Callable[..., Any]:
    """PyTorch's own decomposition of `op` into other operators."""
    dispatch: Any = op._op_dk
    key = torch._C.DispatchKey.CompositeImplicitAutograd

    def call(*args: Any, **kwargs: Any) -> Any:
        return dispatch(key, *args, **kwargs)

    return call
