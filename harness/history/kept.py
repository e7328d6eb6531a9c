"""A run's view as text, and back: read instead of the run's results, which are far larger."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from harness.history.views import RunView, Sample
from harness.records import Environment, ExpectationMode, OutcomeKind, Stage, Status

VERSION = 1
"""Of the text. Raise it with any change of `Sample`, of `RunView` or of what `changes` makes of them."""
_NUMBERS = ("error", "seconds")
_BACK: dict[str, Callable[[Any], Any]] = {
    "status": Status,
    "kind": OutcomeKind,
    "stage": lambda value: value and Stage(value),
    "limits": lambda pairs: tuple((name, limit) for name, limit in pairs),
    "retried": lambda kinds: tuple(map(OutcomeKind, kinds)),
    "flags": tuple,
    **dict.fromkeys(_NUMBERS, lambda value: float(value) if isinstance(value, str) else value),
}
"""What JSON does not give back as it was."""


def dump(view: RunView) -> str:
    """Return the view as one line of strict JSON, for `parse`; samples by column, NaN and infinities as words.

    Traits and damage are left out, as the index leaves them out: they serve the night on which a run is read.
    """
    columns = zip(*view.samples.values(), strict=True) if view.samples else ((),) * len(Sample._fields)
    samples = dict(zip(Sample._fields, columns, strict=True))
    for name in _NUMBERS:
        samples[name] = tuple(v if v is None or math.isfinite(v) else str(v) for v in samples[name])
    return json.dumps(
        {
            "version": VERSION,
            "run_id": view.run_id,
            "started": view.started.isoformat(),
            "environment": view.environment.model_dump(mode="json"),
            "planned": sorted(view.planned),
            "finished": view.finished,
            "profile": view.profile,
            "selection": view.selection,
            "lane": view.lane,
            "expectations": view.expectations,
            "samples": samples,
        },
        allow_nan=False,
    )


def parse(text: str) -> RunView | None:
    """Return the view that `dump` wrote; None when another version wrote it and the run has to be read."""
    tree = json.loads(text)
    if tree.pop("version", None) != VERSION:
        return None
    columns = [_column(name, tree["samples"][name]) for name in Sample._fields]
    return RunView(
        **{
            **tree,
            "started": datetime.fromisoformat(tree["started"]),
            "environment": Environment.model_validate(tree["environment"]),
            "planned": frozenset(tree["planned"]),
            "expectations": ExpectationMode(tree["expectations"]),
            "samples": {one.case: one for one in map(Sample._make, zip(*columns, strict=True))},
        }
    )


def _column(name: str, values: list[Any]) -> Iterable[Any]:
    back = _BACK.get(name)
    return map(back, values) if back else values
