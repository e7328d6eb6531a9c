"""A flat ahead-of-time plan of one graph: Python source over shadows, one call of the kernel table per step."""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch

from spyre_emulator import constraints, conversions, fallbacks, kernels, layout, operators, private, settings, transfers
from spyre_emulator.dispatch import host_argument
from spyre_emulator.dtypes import shadow_dtype
from spyre_emulator.fallbacks import UnsupportedError
from spyre_emulator.memory import shadow, wrap
from spyre_emulator.numerics import round_
from spyre_emulator.recording import Key, PlanFacts

aten = private.aten
Node = torch.fx.Node
Tensor = torch.Tensor


class Step(NamedTuple):
    """One node of the graph as the plan runs it."""

    node: Node
    kind: str
    """``native``, ``fallback``, ``view``, ``copy`` (casts, transfers, mutations), ``host`` or ``size``."""
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    rounds: bool
    frees: tuple[Node, ...]


def value_of(node: Any) -> Any:
    """The fake value that tracing attached to `node`; anything else as it is."""
    return node.meta.get("val") if isinstance(node, Node) else node


def is_on_device(value: Any) -> bool:
    """Whether `value` is a tensor on the emulated device."""
    return isinstance(value, Tensor) and value.device.type == private.DEVICE_NAME


def _outputs(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _logical(value: Any) -> tuple[torch.dtype | None, ...]:
    return tuple(v.dtype if isinstance(v, Tensor) else None for v in _outputs(value))


class Plan:
    """An executable plan of `graph`; call `run` with the list of graph inputs."""

    def __init__(self, graph: torch.fx.GraphModule, recompilation: bool) -> None:
        self.graph = graph
        self.inputs = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self.outputs = _output_values(graph)
        self._last_use = _last_uses(graph)
        self._slots = {n: i for i, n in enumerate(graph.graph.nodes)}
        self._attributes = {n: getattr(graph, n.target) for n in graph.graph.nodes if n.op == "get_attr"}
        self.unimplemented: list[str] = []
        """Operators for which the published stack compiles a runner that only raises."""
        self.steps = [self._step(n) for n in graph.graph.nodes if n.op == "call_function"]
        self.facts = self._facts(recompilation)
        self.source = ""
        self._generation = (-1, -1)
        self._run: Callable[[list[Any]], list[Any]] | None = None
        self._tallies: dict[tuple[int, ...], Counter[Key]] = {}
        self._symbols = [i for i, n in enumerate(self.inputs) if isinstance(value_of(n), torch.SymInt)]

    # ---- planning -------------------------------------------------------------------------------------

    def _step(self, node: Node) -> Step:
        frees = tuple(a for a in node.all_input_nodes if self._last_use[a] is node)
        target, value = node.target, value_of(node)
        args = tuple(_host_constant(a) for a in node.args)
        kwargs = {k: _host_constant(v) for k, v in node.kwargs.items()}
        if not isinstance(target, private.OpOverload):
            if not callable(target) or isinstance(target, torch._ops.HigherOrderOperator):
                raise UnsupportedError(f"Spyre backend does not support: the operator {target} in a graph")
            return Step(node, "size", target, args, kwargs, False, frees)
        operands = [value_of(n) for n in node.all_input_nodes]
        if not any(map(is_on_device, [*operands, *_outputs(value)])):
            kind = "size" if not isinstance(value, Tensor) else "host"
            return Step(node, kind, target, node.args, dict(node.kwargs), False, frees)
        special = _SPECIAL.get(target)
        if special is not None:
            return Step(node, "copy", special(node), args[: special.arity], {}, False, frees)
        kernel = kernels.lookup(target)
        if kernel.is_view:
            return Step(node, "view", kernel.compute, args, kwargs, False, frees)
        return self._operator_step(node, kernel, args, kwargs, frees)

    def _operator_step(self, node: Node, kernel: Any, args: Any, kwargs: Any, frees: tuple[Node, ...]) -> Step:
        self._check(node, kernel)
        outcome = kernels.outcome(kernel, _tensor_dtypes(node), _logical(value_of(node)))
        if outcome.half and kernel.numbers:
            args = kernels.encoded(kernel, args)
        call = functools.partial(kernel.compute, half=outcome.half) if kernel.program else kernel.compute
        state = operators.state_with_operands(kernel.op, _geometry(node), compiled=True)
        kind = "native" if state in operators.ON_DEVICE else "fallback"
        return Step(node, kind, call, args, kwargs, outcome.rounds, frees)

    def _check(self, node: Node, kernel: Any) -> None:
        """Refuse what the published stack refuses, where that is asked for."""
        if settings.current.coverage != "published" and not settings.current.strict:
            return
        state = operators.state_of(kernel.op, compiled=True)
        values = tuple(_values(node.args))
        what = fallbacks.refusal(kernel.op, values, {k: value_of(v) for k, v in node.kwargs.items()})
        if state == operators.ENABLED and what is not None and settings.current.coverage == "published":
            raise private.inductor_error(UnsupportedError(fallbacks.unsupported(what)))
        if state == operators.MISSING and settings.current.coverage == "published":
            self.unimplemented.append(str(kernel.op))
        elif settings.current.strict and (state != operators.ENABLED or what is not None):
            raise UnsupportedError(f"{kernel.op} would fall back to the CPU and strict mode forbids that")

    def _facts(self, recompilation: bool) -> PlanFacts:
        kinds = Counter(s.kind for s in self.steps)
        padded = sum(
            layout.padded_bytes(tuple(map(private.size_hint, v.shape)), v.dtype)
            for s in self.steps
            if s.kind in ("native", "fallback", "copy")
            for v in _outputs(value_of(s.node))
            if is_on_device(v)
        )
        return PlanFacts(
            native=kinds["native"],
            fallback=kinds["fallback"],
            views=kinds["view"],
            padded_bytes=padded,
            restickifies=0,
            recompilation=recompilation,
        )

    # ---- code -----------------------------------------------------------------------------------------

    def _bind(self) -> Callable[[list[Any]], list[Any]]:
        """Compile the plan's source against the kernel table as it stands (hooks included)."""
        names: dict[str, Any] = {"shadow": shadow, "wrap": wrap, "round_": round_}
        names["round_all"] = kernels.round_results
        lines = ["def run(a):"]
        for i, node in enumerate(self.inputs):
            reader = "shadow(a[{}])" if is_on_device(value_of(node)) else "a[{}]"
            lines.append(f"  v{self._slots[node]} = {reader.format(i)}")
        for node, attribute in self._attributes.items():
            with private.without_modes():
                names[f"k{self._slots[node]}"] = host_argument(attribute)
            lines.append(f"  v{self._slots[node]} = k{self._slots[node]}")
        for step in self.steps:
            lines.extend(self._lines(step, names))
        lines.append(f"  return [{', '.join(self._result(o, names) for o in self.outputs)}]")
        self.source = "\n".join(lines)
        exec(compile(self.source, "<spyre plan>", "exec"), names)  # noqa: S102 - the source is made above
        run: Callable[[list[Any]], list[Any]] = names["run"]
        return run

    def _lines(self, step: Step, names: dict[str, Any]) -> list[str]:
        slot = self._slots[step.node]
        names[f"f{slot}"] = self._callable(step)
        arguments = [self._reference(a, names) for a in step.args]
        arguments += [f"{k}={self._reference(v, names)}" for k, v in step.kwargs.items()]
        lines = [f"  v{slot} = f{slot}({', '.join(arguments)})"]
        if step.rounds and not self._is_hooked(step):
            value = value_of(step.node)
            if isinstance(value, Tensor):
                lines.append(f"  round_(v{slot})")
            else:
                names[f"d{slot}"] = _logical(value)
                lines.append(f"  round_all(v{slot}, d{slot})")
        if step.frees:
            lines.append("  " + " = ".join(f"v{self._slots[n]}" for n in step.frees) + " = None")
        return lines

    @staticmethod
    def _is_hooked(step: Step) -> bool:
        return step.kind in ("native", "fallback", "view") and kernels.is_hooked(cast("Any", step.node.target))

    def _callable(self, step: Step) -> Callable[..., Any]:
        if not self._is_hooked(step):
            return step.call
        kernel = kernels.lookup(cast("Any", step.node.target))
        outcome = kernels.outcome(kernel, _tensor_dtypes(step.node), _logical(value_of(step.node)))
        dtypes = tuple(v.dtype if isinstance(v := value_of(a), Tensor) else None for a in step.node.args)

        def call(*args: Any, **kwargs: Any) -> Any:
            return kernels.run_hooked(kernel, outcome, args, kwargs, dtypes, "compiled")

        return call

    def _reference(self, a: Any, names: dict[str, Any]) -> str:
        if isinstance(a, Node):
            return f"v{self._slots[a]}"
        if isinstance(a, list):
            return "[" + ", ".join(self._reference(x, names) for x in a) + "]"
        if isinstance(a, tuple):
            return "(" + "".join(self._reference(x, names) + ", " for x in a) + ")"
        if a is None or isinstance(a, (bool, int, str)) or (isinstance(a, float) and math.isfinite(a)):
            return repr(a)
        name = f"c{len(names)}"
        names[name] = a
        return name

    def _result(self, output: Any, names: dict[str, Any]) -> str:
        if not isinstance(output, Node):
            return repr(output)
        value, slot = value_of(output), self._slots[output]
        if output.op == "placeholder":
            return f"a[{self.inputs.index(output)}]"
        if not is_on_device(value):
            return f"v{slot}"
        names[f"t{slot}"] = value.dtype
        return f"wrap(v{slot}, t{slot})"

    # ---- execution ------------------------------------------------------------------------------------

    def run(self, inputs: list[Any]) -> list[Any]:
        """Graph outputs for `inputs`."""
        if self.unimplemented:
            names = ", ".join(sorted(set(self.unimplemented)))
            raise UnsupportedError(f"SpyreUnimplementedRunner: the graph holds operators without a lowering: {names}")
        generation = (kernels.generation, settings.generation)
        if self._run is None or generation != self._generation:
            self._run = self._bind()
            self._generation = generation
        return self._run(inputs)

    def binding(self, inputs: list[Any]) -> tuple[int, ...]:
        """Values of the symbolic sizes among `inputs`."""
        return tuple([inputs[i] for i in self._symbols])

    def tally(self, binding: tuple[int, ...]) -> Counter[Key]:
        """Operator executions of one run; views, copies and size arithmetic are not among them."""
        known = self._tallies.get(binding)
        if known is None:
            sizes = {value_of(self.inputs[i]).node.expr: v for i, v in zip(self._symbols, binding, strict=True)}
            counted = (s for s in self.steps if s.kind in ("native", "fallback"))
            known = Counter((s.node.target, True, _operands(s.node, sizes), _is_refused(s.node)) for s in counted)
            self._tallies[binding] = known
        return known


def _operands(node: Node, sizes: dict[Any, int]) -> tuple[Any, ...]:
    def concrete(dims: Any) -> tuple[int, ...]:
        return tuple(_concrete(d, sizes) for d in dims)

    found: list[Any] = []
    for a in (*node.args, *node.kwargs.values()):
        for item in a if isinstance(a, (list, tuple)) else (a,):
            value = value_of(item)
            if isinstance(value, Tensor):
                found.append((concrete(value.shape), concrete(value.stride()), value.dtype))
    return tuple(found)


def _concrete(dim: Any, sizes: dict[Any, int]) -> int:
    if sizes and isinstance(dim, torch.SymInt):
        return int(dim.node.expr.subs(sizes))
    return private.size_hint(dim)


def _is_refused(node: Node) -> bool:
    kwargs = {k: value_of(v) for k, v in node.kwargs.items()}
    return constraints.refused_arguments(node.target, tuple(_values(node.args)), kwargs) is not None


def _values(args: Any) -> list[Any]:
    return [type(a)(map(value_of, a)) if isinstance(a, (list, tuple)) else value_of(a) for a in args]


def _geometry(node: Node) -> tuple[constraints.Geometry, ...]:
    return tuple((shape, dtype) for shape, _, dtype in _operands(node, {}))


def _output_values(graph: torch.fx.GraphModule) -> list[Any]:
    node = next(n for n in graph.graph.nodes if n.op == "output")
    return list(node.args[0])


def _last_uses(graph: torch.fx.GraphModule) -> dict[Node, Node]:
    last: dict[Node, Node] = {}
    for node in graph.graph.nodes:
        for a in node.all_input_nodes:
            last[a] = node
    return last


def _host_constant(a: Any) -> Any:
    if isinstance(a, Node):
        return a
    if isinstance(a, (list, tuple)):
        return type(a)([_host_constant(x) for x in a])
    return host_argument(a)


def _tensor_dtypes(node: Node) -> tuple[torch.dtype, ...]:
    values: list[Any] = []
    for a in (*node.args, *node.kwargs.values()):
        values.extend(map(value_of, a) if isinstance(a, (list, tuple)) else [value_of(a)])
    return tuple(v.dtype for v in values if isinstance(v, Tensor))


class _Special(NamedTuple):
    """A node that moves data rather than computing: makes the host call from the node."""

    make: Callable[[Node], Callable[..., Any]]
    arity: int

    def __call__(self, node: Node) -> Callable[..., Any]:
        return self.make(node)


def _to_copy(node: Node) -> Callable[..., Any]:
    source, result = value_of(node.args[0]), value_of(node)
    memory_format = node.kwargs.get("memory_format")
    if is_on_device(source) and is_on_device(result):
        return lambda x: transfers.to_copy(source, x, result.dtype, memory_format)  # type: ignore[arg-type]
    if is_on_device(result):
        return lambda x: conversions.to_device(x, result.dtype).clone()
    return lambda x: conversions.to_host(x, source.dtype).to(result.dtype, copy=True)


def _copy_into(node: Node) -> Callable[..., Any]:
    destination, source = value_of(node.args[0]), value_of(node.args[1])

    def call(target: Tensor, values: Tensor) -> Tensor:
        if not is_on_device(destination):
            return target.copy_(conversions.to_host(values, source.dtype))
        if not is_on_device(source):
            return target.copy_(conversions.to_device(values, destination.dtype))
        return target.copy_(transfers.cast(values, source.dtype, destination.dtype))

    return call


def _functional_copy(node: Node) -> Callable[..., Any]:
    into = _copy_into(node)
    destination = value_of(node.args[0])

    def call(target: Tensor, values: Tensor) -> Tensor:
        result: Tensor = into(torch.empty_like(target, dtype=shadow_dtype(destination.dtype)), values)
        return result

    return call


def _clone(node: Node) -> Callable[..., Any]:
    memory_format = node.kwargs.get("memory_format") or torch.preserve_format
    return lambda x: x.clone(memory_format=memory_format)


_SPECIAL: dict[Any, _Special] = {
    aten._to_copy.default: _Special(_to_copy, 1),
    aten.copy_.default: _Special(_copy_into, 2),
    aten.copy.default: _Special(_functional_copy, 2),
    aten.clone.default: _Special(_clone, 1),
    aten.lift_fresh_copy.default: _Special(_clone, 1),
}
SIZE_OPERATORS = frozenset({operator.getitem})
