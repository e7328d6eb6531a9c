"""Comparison throughput, paired with others in one run: GB/s of two float32 tensors of 16 Mi elements.

    python benchmarks/compare_throughput.py [--polygraphy PYTHON] [--rounds N]

All elementwise metrics of harness.compare (the C kernel and its pure form) against numpy.allclose and, with
the interpreter of an environment in which it is installed, Polygraphy's default comparison. Rounds alternate,
the medians are printed. Then the metrics of logits at a vocabulary of 150,000.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from harness.compare import compare_outputs, number_format
from harness.compare.kernel import KERNEL
from harness.compare.measure import Probe
from harness.compare.pairs import Side, compare_floats

ELEMENTS = 1 << 24
VOCABULARY, POSITIONS = 150_000, 32

POLYGRAPHY = """
import time, numpy as np
from polygraphy.comparator import CompareFunc, IterationResult
g = np.random.default_rng(0)
y = g.standard_normal({elements}, dtype=np.float32)
x = y + np.float32(1e-3) * g.standard_normal({elements}, dtype=np.float32)
compare, a, b = CompareFunc.simple(), IterationResult({{"y": x}}), IterationResult({{"y": y}})
start = time.perf_counter()
compare(a, b)
print(time.perf_counter() - start)
"""


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--polygraphy", help="Python interpreter that imports polygraphy")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    _elementwise(options.rounds, options.polygraphy)
    _logits(options.rounds)


def _elementwise(rounds: int, polygraphy: str | None) -> None:
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(ELEMENTS, generator=generator)
    candidate = reference + 1e-3 * torch.randn(ELEMENTS, generator=generator)
    sides = {"candidate": Side(candidate, number_format("dlfloat16"))}
    subjects: dict[str, Callable[[], object]] = {
        "numpy.allclose (verdict only)": lambda: np.allclose(candidate.numpy(), reference.numpy()),
        "harness.compare, pure form": lambda: compare_floats(
            reference, sides, Probe(1e-2, 1e-2), (0.5, 0.9, 0.99, 0.999), kernel=None
        ),
    }
    if KERNEL is not None:
        subjects["harness.compare, C kernel"] = lambda: compare_floats(
            reference, sides, Probe(1e-2, 1e-2), (0.5, 0.9, 0.99, 0.999)
        )
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, subject in subjects.items():
            seconds[name].append(_timed(subject))
        if polygraphy:
            seconds.setdefault("Polygraphy, default", []).append(_polygraphy(polygraphy))
    size = 2 * 4 * ELEMENTS / 1e9
    base = statistics.median(seconds["numpy.allclose (verdict only)"])
    _say(f"two float32 tensors of {ELEMENTS} elements, {rounds} rounds")
    for name, times in seconds.items():
        median = statistics.median(times)
        _say(f"{name:34} {1e3 * median:8.0f} ms {size / median:6.2f} GB/s {base / median:6.2f}x numpy.allclose")


def _logits(rounds: int) -> None:
    generator = torch.Generator().manual_seed(0)
    reference = 5 * torch.randn(1, POSITIONS, VOCABULARY, generator=generator)
    candidate, control = (
        (reference + error * torch.randn(reference.shape, generator=generator)).half() for error in (1e-2, 5e-3)
    )
    outputs = ({"logits": side} for side in (reference, candidate, control))
    named = tuple(outputs)
    times = [_timed(lambda: compare_outputs(*named, logits=["logits"])) for _ in range(rounds)]
    read = 8 * reference.numel() / 1e9
    median = statistics.median(times)
    _say(
        f"logits [1, {POSITIONS}, {VOCABULARY}], candidate and control in float16, all metrics: "
        f"{1e3 * median:.0f} ms, {read / median:.2f} GB/s, {1e3 * median / POSITIONS:.1f} ms a position"
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _timed(subject: Callable[[], object]) -> float:
    start = time.perf_counter()
    subject()
    return time.perf_counter() - start


def _polygraphy(python: str) -> float:
    script = POLYGRAPHY.format(elements=ELEMENTS)
    done = subprocess.run([python, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
