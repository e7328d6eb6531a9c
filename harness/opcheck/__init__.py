"""Op conformance from models: what the variants recorded in a run say about each op."""

from harness.opcheck.summary import OpReport, render, summarize

__all__ = ["OpReport", "render", "summarize"]
