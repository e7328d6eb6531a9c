"""Files through which a step hands on outputs and its summary, kept inside GitHub's limits."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from harness.errors import UsageError

OUTPUT_BYTES = 1 << 20
"""Most bytes of a job's outputs (GitHub Docs: "Passing information between jobs")."""
SUMMARY_BYTES = 1 << 20
"""Most bytes of a step's summary; a larger one is not shown at all (GitHub Docs: "Workflow commands")."""


def set_outputs(path: Path, values: Mapping[str, str]) -> None:
    """Append outputs of a step, whatever is in them. Raises UsageError beyond GitHub's limit."""
    lines = []
    for name, value in values.items():
        end = f"end-{secrets.token_hex(16)}"  # cannot be guessed, so no value can end itself early
        lines.append(f"{name}<<{end}\n{value}\n{end}\n")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in values.items())
    if size > OUTPUT_BYTES:
        raise UsageError(
            f"the outputs {', '.join(values)} have {size} bytes, more than {OUTPUT_BYTES}; hand large data on in a file"
        )
    with path.open("a", encoding="utf-8") as stream:
        stream.writelines(lines)


def append_summary(path: Path, text: str, limit: int = SUMMARY_BYTES) -> None:
    """Append to a step's summary so that the whole stays within ``limit`` bytes, cut at the end of a line."""
    room = limit - (path.stat().st_size if path.exists() else 0)
    data = text.encode("utf-8", "replace")
    note = b"\nCut here: the rest is in the artifacts.\n"
    if len(data) > room:
        kept = data[: max(0, room - len(note))]
        data = kept[: kept.rfind(b"\n") + 1] + note
    if len(data) <= room:
        with path.open("ab") as stream:
            stream.write(data)
