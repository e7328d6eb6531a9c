"""Turns a GGUF file into an ordinary float32 safetensors checkpoint; also the program that does it.

``python -m harness.checkpoints.gguf FILE FOLDER`` runs in a process of its own: it needs torch and a
few times the model's memory, which are gone when it ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness.checkpoints import child
from harness.checkpoints.structure import invalid
from harness.errors import CheckpointError
from harness.records import OutcomeKind

MAGIC = b"GGUF"
"""https://github.com/ggml-org/ggml/blob/master/docs/gguf.md"""


def convert(file: Path, folder: Path, origin: str, *, timeout: float) -> None:
    """Write FILE's weights, dequantised exactly, its config and its tokenizer into FOLDER."""
    with file.open("rb") as start:
        if start.read(len(MAGIC)) != MAGIC:
            raise invalid(origin, f"{file.name} is no GGUF file: it does not begin with {MAGIC.decode()}")
    command = [sys.executable, "-m", "harness.checkpoints.gguf", str(file), str(folder)]
    finished = child.run(command, timeout=timeout)
    if finished.status is None:
        raise CheckpointError(
            f"{origin}: the conversion of {file.name} did not end within {timeout:.0f} s", OutcomeKind.UNAVAILABLE
        )
    if finished.status < 0:
        raise CheckpointError(
            f"{origin}: the conversion of {file.name} was ended by signal {-finished.status}; too little memory?",
            OutcomeKind.UNAVAILABLE,
        )
    if finished.status != 0:
        raise invalid(origin, f"{file.name} could not be converted from GGUF: {finished.tail(3)}")


def main(file: Path, folder: Path) -> None:
    """Convert FILE into FOLDER. float32 holds every dequantised value; a 16-bit format would not."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
        local_files_only=True,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
