"""Runs over time: what changed, whose change it was, what is accepted, what may be released."""

from harness.history import baseline
from harness.history.attribution import Suspect, explain, explain_change
from harness.history.baseline import Baseline
from harness.history.causes import Cause, causes, tell
from harness.history.changes import changes, diff, earlier
from harness.history.gate import GateResult, gate
from harness.history.kept import dump, parse
from harness.history.views import RunView, Sample, Trait, lane, sample, view

__all__ = [
    "Baseline",
    "Cause",
    "GateResult",
    "RunView",
    "Sample",
    "Suspect",
    "Trait",
    "baseline",
    "causes",
    "changes",
    "diff",
    "dump",
    "earlier",
    "explain",
    "explain_change",
    "gate",
    "lane",
    "parse",
    "sample",
    "tell",
    "view",
]
