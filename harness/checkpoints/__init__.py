"""Where weights come from: hub, wheel and folder, all ending in a verified local folder."""

from harness.checkpoints.cache import hold, release
from harness.checkpoints.load import LoadedModel, load_model, load_tokenizer
from harness.checkpoints.resolve import Facts, describe, resolve

__all__ = ["Facts", "LoadedModel", "describe", "hold", "load_model", "load_tokenizer", "release", "resolve"]
