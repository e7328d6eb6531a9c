"""Encodings, layouts and host/device conversions against the published values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's convention

from spyre_emulator import conversions, numerics, settings
from spyre_emulator.fidelity.figures import Figure
from spyre_emulator.layout import default_layout

CONSTANTS_SOURCE = "torch-spyre:torch_spyre/_inductor/constants.py"
DLFLOAT_SOURCE = "DLFloat, ARITH 2019; onnx-mlir NNPA header"
LAYOUT_SOURCE = "torch-spyre:docs/source/user_guide/tensors_and_layouts.md"
ELEMENT, REBIAS = "element-2026-09", "rebias-2026-04"


def _code(value: float) -> float:
    """The code of a host constant."""
    exact = torch.tensor([numerics.round_scalar(value)])
    return float(int(numerics.encode(exact)[0]) & 0xFFFF)


def _decoded(code: int) -> float:
    word = torch.tensor([code - 0x10000 if code & 0x8000 else code], dtype=torch.int16)
    return float(numerics.decode(word)[0])


def _figures(
    topic: str, source: str, cases: Mapping[str, tuple[float, Callable[[], float]]], digits: int | None = None
) -> list[Figure]:
    """Figures that hold by construction; with `digits`, as far as the source prints them."""
    prefix = topic.partition(" ")[0]
    return [
        Figure(
            id=f"{prefix}/{name}",
            topic=topic,
            quantity=name,
            published=published,
            origin="by construction",
            source=source,
            measure=call if digits is None else functools.partial(_printed, call, digits),
        )
        for name, (published, call) in cases.items()
    ]


def _printed(call: Callable[[], float], digits: int) -> float:
    return float(f"{call():.{digits}g}")


def encodings() -> list[Figure]:
    """Host constants to codes, and codes to numbers."""
    constants = {
        0.0: 0,
        1.0: 0x3E00,
        0.00390625: 11776,
        1e-5: 7327,
        0.000347222: 9944,
        1.1920929e-07: 0x1000,
        3.4028234663852886e38: 0x7DFF,
    }
    codes = {
        0x7FFE: 8.573157376e9,
        0x7DFF: 4.291e9,
        0xEFFF: -3.352e7,
        0x7E00: 2.0**32,
        0x1000: 2.0**-23,
        11776: 0.00390625,
        7327: 9.99868e-06,
        0x0001: 4.6657e-10,
        0x0200: 9.3132e-10,
    }
    encoded = {f"{value:g}": (float(code), functools.partial(_code, value)) for value, code in constants.items()}
    exact = {0x7FFE, 0x7E00, 0x1000, 11776}
    found = _figures("encode host constant", CONSTANTS_SOURCE, encoded)
    for code, value in codes.items():
        digits = None if code in exact else len(f"{value:g}".partition("e")[0].replace(".", "").strip("-"))
        case = {f"0x{code:04X}": (value, functools.partial(_decoded, code))}
        found += _figures("decode code", DLFLOAT_SOURCE, case, digits)
    epsilon = {"spacing at 1": (2.0**-9, lambda: _decoded(0x3E01) - 1.0)}
    return found + _figures("epsilon", DLFLOAT_SOURCE, epsilon)


def _crossing(value: float, times: int = 1) -> float:
    """What the host reads after `times` round trips of a float16 value under the September 2026 profile."""
    host = torch.tensor([value], dtype=torch.float16)
    with settings.using(conversion=ELEMENT):
        for _ in range(times):
            host = conversions.to_host(conversions.to_device(host, torch.float16), torch.float16)
    return float(host[0])


def _arriving(value: float, profile: str) -> float:
    with settings.using(conversion=profile):
        return float(conversions.to_device(torch.tensor([value], dtype=torch.float16), torch.float16)[0])


def _special(function: Callable[[torch.Tensor], torch.Tensor], value: float, profile: str = REBIAS) -> float:
    """`function` on the device, of a special value that arrived under a profile, as printed."""
    with settings.using(conversion=profile):
        return float(f"{float(function(torch.tensor([value], dtype=torch.float16).to('spyre')).cpu()[0]):.6g}")


def _bfloat16_to_host(rule: str) -> float:
    with settings.using(bf16_to_host=rule):
        return float(conversions.to_host(torch.tensor([18.09375]), torch.bfloat16)[0])


def crossings() -> list[Figure]:
    """Round trips of small float16 numbers, and special values on arrival."""
    chain = {1: 1.4960766e-05, 2: 7.4505806e-06, 3: 3.6954880e-06}
    cases = {f"2.9981136e-05, {n} times": (v, functools.partial(_crossing, 2.9981136e-05, n)) for n, v in chain.items()}
    cases |= {
        "1.9550323e-05": (9.7751617e-06, functools.partial(_crossing, 1.9550323e-05)),
        "5.96e-08": (0.0, functools.partial(_crossing, 5.96e-08)),
        "6.1035e-05": (6.1035156e-05, functools.partial(_crossing, 6.1035e-05)),
    }
    found = _figures("subnormal after crossing", "torch-spyre#4689", cases, 8)
    arrivals = {
        "65504": (65472.0, functools.partial(_arriving, 65504.0, ELEMENT)),
        "+Inf": (2.0**32, functools.partial(_arriving, torch.inf, ELEMENT)),
        "-Inf": (-(2.0**32), functools.partial(_arriving, -torch.inf, ELEMENT)),
        "+Inf, April 2026": (65536.0, functools.partial(_arriving, torch.inf, REBIAS)),
        "NaN, April 2026": (98304.0, functools.partial(_arriving, torch.nan, REBIAS)),
    }
    found += _figures("arrival on the device", "third-party port; torch-spyre#1851, torch-spyre#1830", arrivals)
    to_host = {
        "18.09375, truncating": (18.0, functools.partial(_bfloat16_to_host, "bf16-trunc")),
        "18.09375, rounding": (18.125, functools.partial(_bfloat16_to_host, "bf16-rne")),
    }
    return found + _figures("bf16 to the host", "torch-spyre#2478, torch-spyre PR #2524", to_host)


def specials() -> list[Figure]:
    """Functions of special values as printed in April 2026."""
    rows = {
        "log(inf)": (11.0938, functools.partial(_special, torch.log, torch.inf)),
        "log(nan)": (11.5, functools.partial(_special, torch.log, torch.nan)),
        "sigmoid(nan)": (1.0, functools.partial(_special, torch.sigmoid, torch.nan)),
        "silu(-inf)": (0.0, functools.partial(_special, F.silu, -torch.inf)),
        "mish(-100)": (0.0, functools.partial(_special, F.mish, -100.0)),
    }
    found = [
        Figure(
            id=f"special/{name}",
            topic="special value, April 2026",
            quantity=name,
            published=published,
            origin="predicted",
            source="torch-spyre#1851",
            measure=call,
        )
        for name, (published, call) in rows.items()
    ]
    open_rows = {
        "log(-1)": (16.1562, functools.partial(_special, torch.log, -1.0), "torch-spyre#1851"),
        "cos(nan)": (-torch.inf, functools.partial(_special, torch.cos, torch.nan, ELEMENT), "torch-spyre#4700"),
    }
    for name, (published, call, source) in open_rows.items():
        found.append(
            Figure(
                id=f"special/{name}",
                topic="special value",
                quantity=name,
                published=published,
                origin="predicted",
                source=source,
                measure=call,
                explanation="what the device's functions return outside their domain is not public "
                "(docs/fidelity.md, Not public: special functions)",
            )
        )
    return found


def layouts() -> list[Figure]:
    """The published examples of device layouts."""
    examples: list[tuple[tuple[int, ...], torch.dtype, str]] = [
        ((512, 256), torch.float16, "[4, 512, 64] [64, 256, 1]"),
        ((128, 256, 512), torch.float16, "[256, 8, 128, 64] [512, 64, 131072, 1]"),
        ((50, 10, 200), torch.float16, "[10, 4, 50, 64]"),
        ((1, 8, 576, 128), torch.float16, "[8, 576, 2, 1, 64]"),
        ((2, 4, 8, 4), torch.float32, "[4, 8, 1, 2, 32] [32, 4, 32, 128, 1]"),
    ]

    def measure(shape: tuple[int, ...], dtype: torch.dtype, published: str) -> str:
        strides = torch.empty(shape, device="meta").stride()
        layout = default_layout(shape, strides, dtype)
        size = str(list(layout.device_size))
        return f"{size} {list(layout.stride_map)}" if published.count("[") == 2 else size

    return [
        Figure(
            id=f"layout/{'x'.join(map(str, shape))}",
            topic="device layout",
            quantity=f"device_size and stride_map of {list(shape)}",
            published=published,
            origin="by construction",
            source=LAYOUT_SOURCE,
            measure=functools.partial(measure, shape, dtype, published),
        )
        for shape, dtype, published in examples
    ]


def figures() -> list[Figure]:
    """Every figure of this part."""
    return [*encodings(), *crossings(), *specials(), *layouts()]
