"""How close the emulated device comes to what was published about the real one: ``python -m spyre_emulator.fidelity``.

See docs/fidelity.md for what is modelled, estimated and unknown.
"""

from __future__ import annotations

from spyre_emulator.fidelity import accumulations, costs, formats, limits, models, tolerances
from spyre_emulator.fidelity.figures import Figure, Row, Table, table
from spyre_emulator.fidelity.report import as_json, as_markdown, as_text, store, summary


def all_figures() -> list[Figure]:
    """Every published clean-path figure, in the order of the table."""
    return [figure for part in (formats, limits, accumulations, tolerances, models, costs) for figure in part.figures()]


__all__ = [
    "Figure",
    "Row",
    "Table",
    "all_figures",
    "as_json",
    "as_markdown",
    "as_text",
    "store",
    "summary",
    "table",
]
