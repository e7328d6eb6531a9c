"""Names of the files in a run directory."""

RUN_FILE = "run.json"
CASES_FILE = "cases.jsonl"
