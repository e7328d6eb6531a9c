"""What localisation costs: time against a plain run of the case, peak memory against reference plus candidate.

``python benchmarks/localization.py [MODEL]``; the fault is one op variant whose results are 5% too large.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings

import psutil
import torch

import spyre_emulator
from benchmarks.seeded_faults import subjects
from harness import compare, localize
from harness.apart import comparator
from harness.localize import Device
from harness.options import default_cache
from harness.records import Dtype
from harness.subject import run
from spyre_emulator import kernels
from spyre_emulator.kernels import OpCall


def peak() -> float:
    """Peak resident GB of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main(name: str) -> None:
    """Measure and print."""
    warnings.simplefilter("ignore", spyre_emulator.FallbackWarning)
    torch.set_num_threads(1)
    began = time.monotonic()
    (subject,) = subjects.subjects(default_cache(), Dtype.FLOAT16, (name,))
    base = psutil.Process().memory_info().rss / 2**30
    reference, candidate = subject.reference, subject.candidate()
    outputs = run(subject.question, candidate, candidate, subject.forced)
    both = peak()
    expected = {key: value for key, value in reference.items() if key not in subject.forced}
    compare.compare_outputs(expected, outputs, None, logits=subject.logits)
    plain = time.monotonic() - began
    wanted = subjects.last_linear(subject)

    def hook(call: OpCall) -> object:
        result = call.proceed()
        return result * 1.05 if tuple(call.args[-1].shape) == wanted else result

    kernels.add_hook("aten.mm.default", hook)
    began = time.monotonic()
    found = localize.first_wrong(
        subject.case.id,
        subject.reference_model,
        candidate,
        subject.forward,
        comparator("dlfloat16", "float16"),
        Device(subjects.DEVICE, None, lambda call: None),
        floor=subject.noise,
    ).localization
    seconds = time.monotonic() - began
    kernels.remove_hook("aten.mm.default", hook)
    print(found.sentence)  # noqa: T201
    print(  # noqa: T201
        f"{name}: plain run (load, reference, candidate, comparison) {plain:.1f} s, localisation {seconds:.1f} s "
        f"({seconds / plain:.2f}x); peak with reference and candidate {both:.2f} GB, then {peak():.2f} GB "
        f"({peak() / both:.2f}x; {(peak() - base) / (both - base):.2f}x beside the {base:.2f} GB of the libraries)"
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m")
