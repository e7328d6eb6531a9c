"""Names of the files in a run directory."""

RUN_FILE = "run.json"
CASES_FILE = "cases.jsonl"
DAMAGED_FILE = "cases.damaged"
"""Lines of `CASES_FILE` that could not be read when the run was resumed."""
