"""The optional C kernel that measures a block of a float32 pair in one go."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class RawMeasures(ctypes.Structure):
    """``struct measures`` of kernel.c."""

    _fields_ = (
        *((name, ctypes.c_double) for name in ("sum_y", "sum_yy", "sum_d", "sum_a", "sum_dd", "sum_yd")),
        *((name, ctypes.c_int64) for name in ("unequal", "mismatches", "zeros_y", "zeros_x", "worst")),
        *((name, ctypes.c_float) for name in ("largest_y", "largest_x", "max_abs", "max_ulp", "needed")),
    )


@dataclass(frozen=True)
class Kernel:
    """The compiled ``harness_measure``."""

    library: ctypes.CDLL

    def measure(
        self,
        reference: NDArray[np.float32],
        side: NDArray[np.float32],
        constants: tuple[float, float, float],
        bins: tuple[NDArray[np.int64], NDArray[np.int64]],
    ) -> RawMeasures | None:
        """Return what `harness.compare.measure.measure` returns for contiguous arrays of one size."""
        raw = RawMeasures()
        finite = self.library.harness_measure(
            reference.ctypes.data,
            side.ctypes.data,
            reference.size,
            *constants,
            ctypes.byref(raw),
            bins[0].ctypes.data,
            bins[1].ctypes.data,
        )
        return raw if finite else None


def load_kernel() -> Kernel | None:
    """Return the kernel, or None where it was not built (setup.py builds it if there is a compiler)."""
    for suffix in EXTENSION_SUFFIXES:
        path = Path(__file__).with_name("_kernel" + suffix)
        if path.exists():
            library = ctypes.CDLL(str(path))
            if library.harness_measures_size() != ctypes.sizeof(RawMeasures):
                return None  # built from an older kernel.c
            pointer, single = ctypes.c_void_p, ctypes.c_float
            library.harness_measure.argtypes = [
                *(pointer, pointer, ctypes.c_int64),
                *(single, single, single),
                *(pointer, pointer, pointer),
            ]
            return Kernel(library)
    return None


KERNEL = load_kernel()
