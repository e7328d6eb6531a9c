"""``python -m spyre_emulator.faults``: the catalogue as a Markdown table."""

from __future__ import annotations

import sys

from spyre_emulator.faults import Fault, fault_catalogue

_HEAD = "| id | kind | what | trigger | effect | source |\n|---|---|---|---|---|---|\n"


def _row(fault: Fault) -> str:
    effect = fault.effect
    if fault.assumed:
        effect += f"; assumed: {fault.assumed}"
    if fault.not_modelled:
        effect = f"not modelled: {fault.not_modelled}"
    cells = (fault.id, fault.kind, fault.title, fault.trigger, effect, fault.source)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def as_markdown() -> str:
    """The catalogue, one row per fault, a table per mechanism group."""
    groups: dict[str, list[Fault]] = {}
    for fault in fault_catalogue():
        groups.setdefault(fault.group or "registered from outside", []).append(fault)
    tables = (f"### {group.capitalize()}\n\n{_HEAD}{''.join(map(_row, faults))}" for group, faults in groups.items())
    return "\n".join(tables)


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
