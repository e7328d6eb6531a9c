"""Run <-> files: the only code that opens a run directory.

A run directory holds ``run.json`` (plan, environment, totals), ``cases.jsonl`` (a line per case, flushed to the disk
as the case ends), ``cases.damaged`` (lines that a resumed run could not read), ``logs/`` and, when the run has ended,
``ops.parquet`` and ``metrics.parquet``. Every file but cases.jsonl is replaced as a whole or not at all.
"""

from harness.store.layout import CASES_FILE, DAMAGED_FILE, RUN_FILE
from harness.store.merge import merge
from harness.store.read import StoredRun, read_plan, read_run, stream_results
from harness.store.write import RunWriter, new_run_id, run_id_for, write_atomically

__all__ = [
    "CASES_FILE",
    "DAMAGED_FILE",
    "RUN_FILE",
    "RunWriter",
    "StoredRun",
    "merge",
    "new_run_id",
    "read_plan",
    "read_run",
    "run_id_for",
    "stream_results",
    "write_atomically",
]
