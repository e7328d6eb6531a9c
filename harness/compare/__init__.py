"""Tensors in, numbers out: pure functions without a threshold."""

from harness.compare.files import compare_files
from harness.compare.formats import FORMATS, NumberFormat, number_format
from harness.compare.outputs import compare_outputs
from harness.compare.text import render_text

__all__ = [
    "FORMATS",
    "NumberFormat",
    "compare_files",
    "compare_outputs",
    "number_format",
    "render_text",
]
