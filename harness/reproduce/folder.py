"""A folder that shows one defect with torch and the device alone."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import fx

from harness.reproduce.reduce import Operands

Tensor = torch.Tensor
SCRIPT, INPUTS, NUMBERS, ENVIRONMENT = "reproduce.py", "inputs.safetensors", "numbers.json", "environment.json"

ATTENTION = "aten._scaled_dot_product_fused_attention_overrideable.default"
ON_CPU = {
    ATTENTION: """\
def on_cpu(query, key, value, bias=None, dropout=0.0, causal=False, debug=False, scale=None):
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, bias, 0.0, causal, scale=scale)
"""
}
"""CPU forms of ops that only devices have, as source."""


STACK = """\
try:
    import torch_spyre  # the real device
except ImportError:
    import spyre_emulator  # the emulated one
"""


@dataclass(frozen=True)
class Defect:
    """What a reproducer states."""

    title: str
    """First line of the script."""
    sentence: str
    """What was found, where."""
    device: str
    """``spyre``, or another torch device type."""
    limit: float
    """Relative L2 error from which the defect counts as there."""
    numbers: Mapping[str, float | str | None]
    """Measured when the folder was made."""
    environment: Mapping[str, str]


def write_op(out: Path, defect: Defect, op: Any, operands: Operands) -> Path:
    """Write the reproducer of one op; returns its script.

    The script computes the op on the CPU in float32 and on the device, and exits 1 while they differ by
    more than the limit, or while the device raises.
    """
    names = _Names()
    args = ", ".join([*(names.source(one) for one in operands[0]), *_keywords(names, operands[1])])
    written = [
        names.source(operands[0][index])
        for index, argument in enumerate(op._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write and index < len(operands[0])
    ]
    call = f"torch.ops.{op}({args})"
    helper = ON_CPU.get(str(op), "")
    body = f"    result = {call}\n"
    if helper:
        body = f'    result = on_cpu({args}) if device == "cpu" else {call}\n'
    if written:
        body += f"    result = ({', '.join(written)},)\n"
    script = _script(defect, names, helper, body, 'run("cpu", torch.float32)', f'run("{defect.device}")')
    return _write(out, defect, script, names)


def write_graph(out: Path, defect: Defect, graph: fx.GraphModule, args: list[Any]) -> Path:
    """Write the reproducer of a graph that is right op by op on the device and wrong compiled."""
    names = _Names()
    given = ", ".join(names.source(_plain(one)) for one in args)
    source = _code(graph)
    body = f"    result = (torch.compile(ops, dynamic=False) if compiled else ops)({given})\n"
    script = _script(
        defect, names, f"{_constants(source)}{source}\n", body, "run(DEVICE)", "run(DEVICE, compiled=True)"
    ).replace("def run(device, dtype=None):", "def run(device, dtype=None, compiled=False):")
    return _write(out, defect, script.replace("DEVICE", f'"{defect.device}"'), names)


class _Names:
    """Names of tensors, in order of appearance, and their source."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def source(self, value: Any) -> str:
        """An operand as Python source."""
        if isinstance(value, Tensor):
            known = next((name for name, one in self.tensors.items() if one is value), None)
            name = known or f"x{len(self.tensors)}"
            self.tensors[name] = value
            return name
        if isinstance(value, list | tuple):
            inner = ", ".join(self.source(one) for one in value)
            return f"[{inner}]"
        if isinstance(value, torch.device):
            return "device"
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return f"dtype or {value}"
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return f'float("{value}")'
        return repr(value)


def _script(defect: Defect, names: _Names, helper: str, body: str, expected: str, observed: str) -> str:
    load = "\n".join(
        f'    {name} = operand("{name}", {tuple(one.shape)}, {tuple(one.stride())}, {one.storage_offset()}, '
        "device, dtype)"
        for name, one in names.tensors.items()
    )
    stack = STACK if defect.device == "spyre" else ""
    sentence = textwrap.fill(defect.sentence, 110)
    return f'''"""{defect.title}

{sentence}

Exits 1 while the defect is there and 0 once it is gone. Needs torch, safetensors and the device alone.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

{stack}
LIMIT = {defect.limit:.3g}
STORED = load_file(Path(__file__).with_name("{INPUTS}"))


def operand(name, size, stride, offset, device, dtype):
    flat = STORED[name].clone()
    flat = flat.to(dtype) if dtype is not None and flat.is_floating_point() else flat
    return flat.to(device).as_strided(size, stride, offset)


{helper}{chr(10) if helper else ""}{chr(10) if helper else ""}def run(device, dtype=None):
{load}
{body}    results = result if isinstance(result, (list, tuple)) else [result]
    return [one.cpu().float() for one in results if isinstance(one, torch.Tensor)]


with torch.no_grad():
    expected = {expected}
    try:
        observed = {observed}
    except (RuntimeError, NotImplementedError) as error:
        sys.exit(f"the device raises {{type(error).__name__}}: {{error}}")
errors = []
for a, b in zip(expected, observed):
    difference = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, b - a)
    errors.append(float(difference.norm() / a[a.isfinite()].norm().clamp_min(1e-30)))
print(f"relative L2 errors {{errors}} (limit {{LIMIT:g}})")
sys.exit(any(not error <= LIMIT for error in errors))
'''


def _write(out: Path, defect: Defect, script: str, names: _Names) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    save_file({name: _storage(tensor) for name, tensor in names.tensors.items()}, out / INPUTS)
    (out / NUMBERS).write_text(json.dumps({**defect.numbers, "limit": defect.limit}, indent=1) + "\n")
    (out / ENVIRONMENT).write_text(json.dumps(dict(defect.environment), indent=1) + "\n")
    (out / SCRIPT).write_text(script)
    return out / SCRIPT


def _storage(tensor: Tensor) -> Tensor:
    """The elements from the start of the storage to the tensor's last one, flat."""
    if not tensor.numel():
        return torch.empty(0, dtype=tensor.dtype)
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((tensor.storage_offset() + last + 1,), (1,), 0).clone()


def _keywords(names: _Names, kwargs: dict[str, Any]) -> list[str]:
    return [f"{key}={names.source(value)}" for key, value in kwargs.items()]


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _code(graph: fx.GraphModule) -> str:
    """The graph as a function ``ops``, without annotations."""
    copied = fx.Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    for node in copied.nodes:
        node.type = None
    source = fx.GraphModule(graph, copied).code.strip()
    return source.replace("def forward(self, ", "def ops(").replace("def forward(self)", "def ops()")


def _constants(source: str) -> str:
    """Imports that the code of a graph takes for granted."""
    lines = []
    if "device(" in source:
        lines.append("from torch import device")
    if "inf" in source.replace("info", ""):
        lines.append("from math import inf")
    return textwrap.dedent("\n".join(lines)) + ("\n\n\n" if lines else "")
