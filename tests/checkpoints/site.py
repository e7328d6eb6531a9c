"""A place for one test: an own cache, an own Hugging Face home and a client that knows one loopback Hub."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from harness.checkpoints import resolve
from harness.errors import CheckpointError
from harness.records import Checkpoint, HubSource, Source
from tests.checkpoints.loopback_hub import Hub

REPOSITORY = "acme/tiny"


def write_checkpoint(folder: Path, *, value: float = 1.0, elements: int = 600, shards: int = 1) -> Path:
    """Return FOLDER with a config, a tokenizer file and weights in SHARDS files, made without torch."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "value": value}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {str(value): 0}}}))
    if shards == 1:
        save_file({"w0": np.full(elements, value, np.float32)}, folder / "model.safetensors")
        return folder
    names = {f"w{i}": f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)}
    for tensor, name in names.items():
        save_file({tensor: np.full(elements, value, np.float16)}, folder / name)
    index = {"metadata": {"total_size": 2 * shards * elements}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


class Site:
    """Resolves sources in directories of its own."""

    def __init__(self, root: Path, hub: Hub | None = None, **environ: str) -> None:
        self.root = root
        self.cache = root / "cache"
        self.hub_cache = root / "hf" / "hub"
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PIP_"))}
        self.environ |= {"HF_HOME": str(root / "hf"), "HF_ENDPOINT": hub.url if hub else "http://127.0.0.1:9"}
        self.environ |= environ

    def resolve(self, source: Source, **options: Any) -> Checkpoint:
        """Return the checkpoint, as `harness.checkpoints.resolve` does."""
        return resolve(source, cache=self.cache, base=self.root, environ=self.environ, **{"timeout": 60.0, **options})

    def outcome(self, source: Source, **options: Any) -> tuple[str, str]:
        """Return kind and message of the refusal; ``("ok", folder)`` when there is none."""
        try:
            return "ok", self.resolve(source, **options).folder
        except CheckpointError as error:
            return str(error.kind), str(error)


def hub_source(commit: str, repository: str = REPOSITORY, **allowed: str) -> HubSource:
    """Return the source of a repository on the loopback Hub."""
    return HubSource(hub=repository, revision=commit, **allowed)
