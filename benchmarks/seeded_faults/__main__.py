"""``python -m benchmarks.seeded_faults``: measure, then write docs/seeded-faults.md and its plot."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import torch

import spyre_emulator
from benchmarks.seeded_faults import study, tables
from harness.options import default_cache
from harness.records import Dtype

ENCODERS = ("minilm-l6-v2", "rxnmapper", "rxnfp-classifier")
SMALL = ("llama-licence", "granite-licence", "qwen3-licence", *ENCODERS)


def main() -> None:
    """Run the study, or the part of it that is still missing."""
    parser = argparse.ArgumentParser("seeded_faults")
    parser.add_argument("--out", type=Path, default=Path("reports/runs/seeded-faults.jsonl"), help="measurements")
    parser.add_argument("--freeze", action="store_true", help="freeze the verdict's limits as they are")
    parser.add_argument("--parts", default="clean,development,held-out,catalogue,compiled,tables")
    parser.add_argument("--clean", type=int, default=40, help="clean comparisons per small model in float16")
    parser.add_argument("--faults", type=int, default=12, help="faults per small model and half")
    options = parser.parse_args()
    warnings.simplefilter("ignore", spyre_emulator.FallbackWarning)
    warnings.filterwarnings("ignore", category=UserWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(1)
    if options.freeze:
        study.freeze()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    log, cache, parts = study.Log(options.out), default_cache(), set(options.parts.split(","))
    if "clean" in parts:
        study.clean(log, cache, SMALL, Dtype.FLOAT16, range(options.clean))
        study.clean(log, cache, SMALL, Dtype.BFLOAT16, range(500, 500 + options.clean // 3))
        study.clean(log, cache, ("smollm2-135m",), Dtype.FLOAT16, range(options.clean // 10))
    for half in ("development", "held-out"):
        if half in parts:
            study.seeded(log, cache, SMALL, Dtype.FLOAT16, options.faults, half)
            study.seeded(log, cache, ("smollm2-135m",), Dtype.FLOAT16, options.faults // 3, half)
    if "catalogue" in parts:
        study.known(log, cache, ("llama-licence", "qwen3-licence", "minilm-l6-v2"), Dtype.FLOAT16, compiled=False)
    if "compiled" in parts:
        study.known(log, cache, ("llama-licence", "minilm-l6-v2"), Dtype.FLOAT16, compiled=True)
    if "tables" in parts:
        tables.write(log.path, Path("docs"))


if __name__ == "__main__":
    main()
