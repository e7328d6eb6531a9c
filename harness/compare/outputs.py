"""All named outputs of a case: structure first, then numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch

from harness.compare.formats import NumberFormat, number_format
from harness.compare.integers import compare_integers
from harness.compare.logits import compare_logits
from harness.compare.measure import Probe
from harness.compare.pairs import PairResult, Side, compare_floats
from harness.compare.sampling import compare_sampling
from harness.compare.vectors import Vectors, one_vector, vector_errors
from harness.compare.walk import Tree, walk
from harness.errors import UsageError
from harness.records import Comparison, OutputComparison, Sampling, SamplingNumbers

CANDIDATE, CONTROL = "candidate", "control"


@dataclass(frozen=True)
class _Question:
    """What is the same for every output."""

    formats: Mapping[str, NumberFormat]
    probe: Probe
    quantiles: tuple[float, ...]
    logits: frozenset[str]
    padded_vocabulary: frozenset[str]
    masks: Mapping[str, torch.Tensor]
    inputs: Mapping[str, torch.Tensor]
    sampling: Sampling | None


def compare_outputs(
    reference: Mapping[str, object],
    candidate: Mapping[str, object],
    control: Mapping[str, object] | None,
    *,
    logits: Collection[str] = (),
    candidate_format: str = "dlfloat16",
    control_format: str = "float16",
    padded_vocabulary: Collection[str] = (),
    masks: Mapping[str, torch.Tensor] | None = None,
    inputs: Mapping[str, object] | None = None,
    sampling: Sampling | None = None,
) -> Comparison:
    """Return numbers for every tensor in ``reference`` and in ``candidate``, by name.

    Values are tensors or nested structures of them (`harness.compare.walk`). For names in ``logits``
    the tensors are [..., vocabulary] and are compared as distributions too. Names in
    ``padded_vocabulary`` are logits whose candidate may have extra columns at the end: these are cut
    off, unless one of them wins. ``masks`` maps an output to a bool tensor of its leading dimensions,
    true where it is compared; the empty name holds for all outputs whose shape begins like the mask's.
    ``inputs`` are what the model was given: an output that repeats one is pointed out. With ``sampling``
    tokens are drawn from the candidate's logits and held against the reference's probabilities.
    """
    trees = {"reference": walk(reference), CANDIDATE: walk(candidate)}
    if control is not None:
        trees[CONTROL] = walk(control)
    defaults = Comparison()
    question = _Question(
        formats={CANDIDATE: number_format(candidate_format), CONTROL: number_format(control_format)},
        probe=Probe(defaults.probe_atol, defaults.probe_rtol),
        quantiles=defaults.quantiles,
        logits=frozenset(logits),
        padded_vocabulary=frozenset(padded_vocabulary),
        masks=masks or {},
        inputs=walk(inputs or {}).tensors,
        sampling=sampling,
    )
    return Comparison(
        outputs=tuple(_compare(name, trees, question) for name in _names(trees)),
        not_compared=_not_compared(trees),
        candidate_format=candidate_format,
        control_format=control_format,
        control_noise=question.formats[CONTROL].noise,
    )


def _names(trees: Mapping[str, Tree]) -> list[str]:
    """Return the names of the union of reference and candidate, in order of appearance."""
    return list(dict.fromkeys([*trees["reference"].tensors, *trees[CANDIDATE].tensors]))


def _not_compared(trees: Mapping[str, Tree]) -> tuple[str, ...]:
    """Return what was found and has no numbers, each once, with the reason."""
    found: dict[str, None] = {}
    for role, tree in trees.items():
        for name, reason in tree.unknown.items():
            found[f"{name} ({role}): {reason}"] = None
    for name, tensor in trees["reference"].tensors.items():
        if not tensor.numel():
            found[f"{name}: empty, shape {_shape(tensor)}"] = None
    return tuple(found)


def _compare(name: str, trees: Mapping[str, Tree], question: _Question) -> OutputComparison:
    """Return the comparison of one output."""
    reference = trees["reference"].tensors.get(name)
    candidate = trees[CANDIDATE].tensors.get(name)
    if reference is None or candidate is None:
        return _one_sided(name, reference, candidate, trees)
    candidate, mismatch = _fit(name, reference, candidate, question)
    facts = OutputComparison(
        name=name,
        shape=tuple(reference.shape),
        elements=0,
        kind="float" if reference.is_floating_point() else "integer",
        reference_dtype=_dtype(reference),
        candidate_dtype=_dtype(candidate),
        mismatch=mismatch,
    )
    if mismatch or not reference.numel():
        return facts
    sides = {CANDIDATE: Side(candidate, question.formats[CANDIDATE])}
    control_mismatch = _add_control(sides, name, reference, trees, question)
    return _numbers(facts, reference, sides, question).model_copy(
        update={"control_mismatch": control_mismatch, "copy_of": _copy_of(candidate, question.inputs)}
    )


def _one_sided(
    name: str, reference: torch.Tensor | None, candidate: torch.Tensor | None, trees: Mapping[str, Tree]
) -> OutputComparison:
    """Return the comparison of an output that one side lacks."""
    if reference is not None:
        reason = trees[CANDIDATE].unknown.get(name)
        mismatch = f"missing in the candidate ({reason})" if reason else "missing in the candidate"
    else:
        mismatch = "unexpected: the reference has no such output"
    present = reference if reference is not None else candidate
    return OutputComparison(
        name=name,
        shape=() if present is None else tuple(present.shape),
        elements=0,
        reference_dtype=None if reference is None else _dtype(reference),
        candidate_dtype=None if candidate is None else _dtype(candidate),
        mismatch=mismatch,
    )


def _fit(
    name: str, reference: torch.Tensor, candidate: torch.Tensor, question: _Question
) -> tuple[torch.Tensor, str | None]:
    """Return the candidate with declared padding cut off, and what of its structure does not fit."""
    mismatch = _structure(reference, candidate)
    if name not in question.padded_vocabulary or not mismatch:
        return candidate, mismatch
    width = reference.shape[-1] if reference.dim() else 0
    if candidate.dim() != reference.dim() or candidate.shape[-1] <= width or not width:
        return candidate, mismatch
    common, padding = candidate[..., :width], candidate[..., width:]
    if bool((padding.amax(dim=-1) >= common.amax(dim=-1)).any()):
        column = width + int(padding.reshape(-1, padding.shape[-1]).amax(dim=0).argmax())
        return candidate, f"column {column} of the vocabulary's padding ({width} tokens) wins a position"
    return common, _structure(reference, common)


def _structure(reference: torch.Tensor, other: torch.Tensor) -> str | None:
    """Return how shape or kind of dtype differ; None when they fit. Nothing is broadcast."""
    if reference.shape != other.shape:
        return f"shape {_shape(other)} against the reference's {_shape(reference)}"
    if reference.is_floating_point() != other.is_floating_point():
        return f"dtype {_dtype(other)} against the reference's {_dtype(reference)}"
    return None


def _add_control(
    sides: dict[str, Side],
    name: str,
    reference: torch.Tensor,
    trees: Mapping[str, Tree],
    question: _Question,
) -> str | None:
    """Add the control to the sides if it fits; return why it does not."""
    if CONTROL not in trees:
        return None
    control = trees[CONTROL].tensors.get(name)
    if control is None:
        return "missing in the control"
    mismatch = _structure(reference, control)
    if mismatch is None:
        sides[CONTROL] = Side(control, question.formats[CONTROL])
    return mismatch


def _numbers(
    facts: OutputComparison, reference: torch.Tensor, sides: dict[str, Side], question: _Question
) -> OutputComparison:
    """Return the facts with the numbers of each side filled in."""
    mask = _mask(facts.name, reference, question.masks)
    if facts.kind == "integer":
        result = compare_integers(reference, sides, mask)
    else:
        result = compare_floats(reference, sides, question.probe, question.quantiles, mask)
    found: dict[str, object] = {"reference_census": result.reference, "elements": _elements(reference, mask)}
    for role, side in result.sides.items():
        found |= {role: side.numbers, f"{role}_census": side.census}
    if facts.kind == "float":
        vectors = _vectors(reference, sides, mask, result)
        found |= _vector_numbers(vectors, result, question.formats[CONTROL].noise)
        if facts.name in question.logits:
            logits = compare_logits(reference, sides, vectors, CONTROL)
            found |= {f"{role}_logits": numbers for role, numbers in logits.items()}
            if question.sampling:
                found["sampling"] = _sampling(reference, sides, vectors, question)
    return facts.model_copy(update=found)


def _vectors(
    reference: torch.Tensor, sides: Mapping[str, Side], mask: torch.Tensor | None, result: PairResult
) -> Vectors:
    if reference.dim() > 1:
        return vector_errors(reference, sides, mask)
    return one_vector(tuple(reference.shape), {role: side.numbers for role, side in result.sides.items()})


def _sampling(
    reference: torch.Tensor, sides: Mapping[str, Side], vectors: Vectors, question: _Question
) -> SamplingNumbers:
    assert question.sampling is not None
    control = sides[CONTROL].tensor if CONTROL in sides else None
    noise = question.formats[CONTROL].noise
    return compare_sampling(reference, sides[CANDIDATE].tensor, control, question.sampling, vectors, noise)


def _vector_numbers(vectors: Vectors, result: PairResult, floor: float) -> dict[str, object]:
    """Return the pair numbers with each side's worst vector, and the typical ratio to the control."""
    found: dict[str, object] = {}
    for role, side in result.sides.items():
        index, error = vectors.worst(role)
        found[role] = side.numbers.model_copy(update={"worst_vector": index, "worst_vector_l2": error})
    if CONTROL in result.sides:
        found["typical_ratio"] = vectors.typical_ratio(CANDIDATE, CONTROL, floor)
        found["worst_ratio_at"], found["worst_ratio"] = vectors.worst_ratio(CANDIDATE, CONTROL, floor)
    return found


def _mask(name: str, reference: torch.Tensor, masks: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """Return the mask of an output. Raises UsageError when one given by name does not fit."""
    mask = masks.get(name)
    if mask is None:
        mask = masks.get("")
        return mask if mask is not None and _leads(mask, reference) else None
    if not _leads(mask, reference):
        raise UsageError(
            f"the mask of output {name!r} has shape {_shape(mask)}, the output {_shape(reference)}: "
            "a mask has the output's leading dimensions"
        )
    return mask


def _leads(mask: torch.Tensor, reference: torch.Tensor) -> bool:
    return tuple(reference.shape[: mask.dim()]) == tuple(mask.shape)


def _elements(reference: torch.Tensor, mask: torch.Tensor | None) -> int:
    if mask is None:
        return reference.numel()
    return int(mask.sum()) * (reference.numel() // max(mask.numel(), 1))


def _copy_of(candidate: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> str | None:
    """Return the name of an input that the candidate repeats; a lone element proves nothing."""
    if candidate.numel() < 2:
        return None
    for name, given in inputs.items():
        if given.shape == candidate.shape and torch.equal(given.to(candidate.dtype), candidate):
            return name
    return None


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _shape(tensor: torch.Tensor) -> str:
    return str(tuple(tensor.shape))
