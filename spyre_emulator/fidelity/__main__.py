"""``python -m spyre_emulator.fidelity [--out DIR]``: print and store the table; exit status 1 unless it holds."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from spyre_emulator import fidelity
from spyre_emulator.fallbacks import FallbackWarning


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and store the table; 0 when it holds, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m spyre_emulator.fidelity", description=fidelity.__doc__)
    parser.add_argument("--out", type=Path, default=Path("reports/fidelity"), help="directory for JSON and Markdown")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        measured = fidelity.table(fidelity.all_figures())
    sys.stdout.write(fidelity.as_text(measured))
    data, page = fidelity.store(measured, options.out)
    sys.stdout.write(f"stored as {data} and {page}\n")
    return 0 if measured.holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
