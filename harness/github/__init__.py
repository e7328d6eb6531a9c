"""What GitHub needs to be told: outputs, summaries, issues and the branch that serves the pages."""

from harness.github.issues import Client, Issue, carry_out, plan
from harness.github.night import Cause, Night, read_night
from harness.github.outputs import append_summary, set_outputs
from harness.github.pages import checkout, publish

__all__ = [
    "Cause",
    "Client",
    "Issue",
    "Night",
    "append_summary",
    "carry_out",
    "checkout",
    "plan",
    "publish",
    "read_night",
    "set_outputs",
]
