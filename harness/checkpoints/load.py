"""Loads a resolved checkpoint with transformers: explicit dtype, nothing missing, fingerprint of the weights."""

from __future__ import annotations

import contextlib
import importlib
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from harness.checkpoints.fingerprint import weights_digest
from harness.checkpoints.structure import invalid
from harness.errors import CheckpointError
from harness.records import Checkpoint, OutcomeKind

if TYPE_CHECKING:
    import torch

LISTED = 5
"""Names of tensors that a message spells out."""


class LoadedModel(NamedTuple):
    """A model in evaluation mode, on the CPU, and what identifies its weights."""

    model: torch.nn.Module
    weights_digest: str
    """The same for every dtype the checkpoint is loaded in; see `harness.checkpoints.fingerprint`."""
    notes: tuple[str, ...]


def load_model(
    checkpoint: Checkpoint, auto_class: str, dtype: Literal["float32", "float16", "bfloat16"]
) -> LoadedModel:
    """Return the model of AUTO_CLASS (``AutoModelForCausalLM``) from the checkpoint's folder, without a request.

    Raises CheckpointError: ``invalid_checkpoint`` for keys that are really missing (tied ones are no
    alarm), other shapes, tensors left without storage and files that transformers cannot read;
    ``unsupported_architecture`` for a model type that it does not know.
    """
    import torch

    _require_known(checkpoint)
    model, info, attention = _from_pretrained(checkpoint, auto_class, getattr(torch, dtype))
    _require_complete(checkpoint, model, info)
    model.eval()
    notes = []
    if attention != "sdpa":
        notes.append(f"attention implementation {attention}: the architecture has no sdpa")
    unexpected = sorted(info["unexpected_keys"])
    if unexpected:
        notes.append(f"{len(unexpected)} stored tensors have no place in {type(model).__name__}: {_names(unexpected)}")
    return LoadedModel(model, weights_digest(model, checkpoint), tuple(notes))


def load_tokenizer(checkpoint: Checkpoint) -> Any:
    """Return the checkpoint's own tokenizer, from its folder alone."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            checkpoint.folder, local_files_only=True, trust_remote_code=checkpoint.allow_remote_code
        )
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise invalid(checkpoint.origin, f"its tokenizer cannot be loaded: {_words(error, checkpoint)}") from error


def _require_known(checkpoint: Checkpoint) -> None:
    from transformers import CONFIG_MAPPING

    if checkpoint.model_type is None and not checkpoint.allow_remote_code:
        raise invalid(checkpoint.origin, "config.json has no 'model_type', so no Auto class can load it; add it there")
    if checkpoint.model_type not in CONFIG_MAPPING and not checkpoint.allow_remote_code:
        raise CheckpointError(
            f"{checkpoint.origin}: model type {checkpoint.model_type!r} is unknown to the installed transformers; "
            "upgrade it, or allow the repository's code in the row",
            OutcomeKind.UNSUPPORTED_ARCHITECTURE,
        )


def _from_pretrained(checkpoint: Checkpoint, auto_class: str, dtype: torch.dtype) -> tuple[Any, dict[str, Any], str]:
    """Return model, loading info and attention implementation: sdpa, or eager where there is no sdpa."""
    import transformers
    from safetensors import SafetensorError

    for attention in ("sdpa", "eager"):
        try:
            with _quiet():
                model, info = getattr(transformers, auto_class).from_pretrained(
                    checkpoint.folder,
                    dtype=dtype,
                    local_files_only=True,
                    trust_remote_code=checkpoint.allow_remote_code,
                    use_safetensors=checkpoint.format == "safetensors",
                    weights_only=True,
                    ignore_mismatched_sizes=True,  # reported below, with names
                    output_loading_info=True,
                    attn_implementation=attention,
                )
        except (OSError, ValueError, KeyError, TypeError, SafetensorError, pickle.UnpicklingError, EOFError) as error:
            if attention == "sdpa" and "scaled_dot_product_attention" in str(error):
                continue
            raise invalid(checkpoint.origin, f"cannot be loaded: {_words(error, checkpoint)}") from error
        return model, info, attention
    raise AssertionError("eager attention is never refused for want of sdpa")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' progress bars and its load report, which repeats what is checked and returned here."""
    logging: Any = importlib.import_module("transformers.utils.logging")  # has no type hints
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _require_complete(checkpoint: Checkpoint, model: torch.nn.Module, info: dict[str, Any]) -> None:
    """Raise CheckpointError when a weight did not come from the checkpoint."""
    missing, mismatched = sorted(info["missing_keys"]), sorted(info["mismatched_keys"])
    if missing:
        raise invalid(
            checkpoint.origin,
            f"load incomplete: {len(missing)} tensors of {type(model).__name__} are not in the checkpoint and would "
            f"be random: {_names(missing)}; choose the task that the checkpoint was made for",
        )
    if mismatched:
        key, stored, wanted = mismatched[0]
        raise invalid(
            checkpoint.origin,
            f"load incomplete: {len(mismatched)} tensors have another shape than config.json asks for: "
            f"{key} is {tuple(stored)} and should be {tuple(wanted)}",
        )
    if info["error_msgs"]:
        raise invalid(checkpoint.origin, f"load incomplete: {str(info['error_msgs'][0])[:500]}")
    empty = [name for name, tensor in [*model.named_parameters(), *model.named_buffers()] if tensor.is_meta]
    if empty:
        raise invalid(checkpoint.origin, f"load incomplete: no storage was made for {_names(empty)} (meta tensors)")


def _names(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _words(error: BaseException, checkpoint: Checkpoint) -> str:
    """Return the error's own words on one plain line, without the local path and pickle's long advice."""
    text = str(error).replace(checkpoint.folder, "<folder>")
    if isinstance(error, pickle.UnpicklingError):
        text = f"holds more than weights, refused: {text.partition('WeightsUnpickler error: ')[2] or text}"
        text = text.partition(" Please use")[0]
    plain = "".join(character for character in " ".join(text.split()) if character.isprintable())
    return f"{type(error).__name__}: {plain[:600]}"
