"""A fingerprint of loaded weights that does not depend on the dtype they were loaded in.

Rounding to a shorter float format keeps the sign of every number, zeros and underflow included, and
nothing else that could be compared bit by bit (the rounded values differ between formats, and rounding
twice differs from rounding once). So the fingerprint covers the checkpoint's file hashes, which fix
the values, and for each tensor its name, shape and signs, which show that this process holds these
tensors: weights drawn at random for a key that did not load have other signs (vllm-project/vllm#35481).
Whole numbers and booleans enter with their values.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from harness.records import Checkpoint

if TYPE_CHECKING:
    import torch

BLOCK = 1 << 22
"""Elements per step, so that the signs of a large embedding need little memory."""


def weights_digest(model: torch.nn.Module, checkpoint: Checkpoint) -> str:
    """Return the sha256 over the checkpoint's files and the names, shapes and signs of all stored tensors."""
    digest = hashlib.sha256(checkpoint.digest.encode())
    stored = model.state_dict(keep_vars=True)
    # Buffers outside the state (rotary frequencies) follow from the config, at times in another precision.
    buffers = [(name, tensor) for name, tensor in model.named_buffers() if name in stored]
    for kind, tensors in (("parameter", list(model.named_parameters())), ("buffer", buffers)):
        for name, tensor in sorted(tensors, key=lambda row: row[0]):
            digest.update(f"\0{kind} {name} {tuple(tensor.shape)}\0".encode())
            _add(digest, tensor.detach())
    return digest.hexdigest()


def _add(digest: hashlib._Hash, tensor: torch.Tensor) -> None:
    import numpy as np
    import torch

    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), BLOCK):
        block = flat[start : start + BLOCK]
        if block.is_floating_point():
            digest.update(np.packbits(torch.signbit(block).numpy()).tobytes())
        else:
            digest.update(block.contiguous().view(torch.uint8).numpy().tobytes())
