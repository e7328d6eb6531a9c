"""Runs over time: what changed, whose change it was, what is accepted, what may be released."""

from harness.history.changes import changes, diff
from harness.history.views import RunView, Sample, lane, sample, view

__all__ = ["RunView", "Sample", "changes", "diff", "lane", "sample", "view"]
