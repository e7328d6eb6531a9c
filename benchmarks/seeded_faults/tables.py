"""The study's measurements as a page of documentation with its plot."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.seeded_faults.rules import PEERS

PAGE, PLOT = "seeded-faults.md", "seeded-faults-roc.svg"
OURS = "ours"
NAMES = (OURS, *(rule.name for rule in PEERS))
Line = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """The lines of a study, sorted by what they are."""

    clean: list[Line]
    faults: list[Line]
    """Those that change some module's output beyond rounding."""
    others: list[Line]
    """Faults that change nothing beyond rounding, or never acted."""
    raised: list[Line]


def read(path: Path) -> Measured:
    """Read a study's lines; of a key that was measured twice the last one counts."""
    lines = list({line["key"]: line for line in map(json.loads, path.read_text().splitlines())}.values())
    faults = [line for line in lines if line["kind"] == "fault"]
    return Measured(
        clean=[line for line in lines if line["kind"] == "clean"],
        faults=[line for line in faults if line["matters"]],
        others=[line for line in faults if not line["matters"]],
        raised=[line for line in lines if line["kind"] == "raised"],
    )


def write(path: Path, docs: Path) -> None:
    """Write the page and the plot."""
    measured = read(path)
    (docs / PLOT).write_text(roc(measured))
    (docs / PAGE).write_text(page(measured))


def alarms(lines: list[Line], name: str) -> int:
    """How many of the lines a rule alarms at."""
    return sum(bool(line["scores"][name][1]) for line in lines)


def at_most(measured: Measured, name: str, allowed: int) -> float:
    """Share of faults that a rule's score detects at the best threshold with at most so many false alarms."""
    clean = sorted((line["scores"][name][0] for line in measured.clean), reverse=True)
    threshold = clean[allowed] if allowed < len(clean) else -math.inf
    return sum(line["scores"][name][0] > threshold for line in measured.faults) / max(1, len(measured.faults))


def rates(measured: Measured) -> list[str]:
    """The main table."""
    clean, faults = measured.clean, measured.faults
    halves = {
        half: [line for line in faults if line["half"] == half] for half in ("development", "held-out", "catalogue")
    }
    rows = [
        "| rule | false alarms | detected | development | held out | catalogue | detected at our false alarm rate |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in NAMES:
        shown = [f"{alarms(part, name)}/{len(part)}" for part in halves.values()]
        share = at_most(measured, name, alarms(clean, OURS))
        label = "**this harness**" if name == OURS else name
        rows.append(
            f"| {label} | {alarms(clean, name)}/{len(clean)} ({_percent(alarms(clean, name), len(clean))}) "
            f"| {alarms(faults, name)}/{len(faults)} ({_percent(alarms(faults, name), len(faults))}) "
            f"| {' | '.join(shown)} | {100 * share:.1f}% |"
        )
    return rows


def located(lines: list[Line]) -> tuple[int, int, int, int]:
    """Right modules of how many, right ops of how many: where the truth names them."""
    found = [line for line in lines if "found" in line]
    modules = [line for line in found if line["truth"]["module"] is not None]
    ops = [line for line in found if line["truth"]["op"]]
    right = sum(line["found"]["module"] == line["truth"]["module"] for line in modules)
    named = sum(_name(line["found"]["op"]) == _name(line["truth"]["op"]) for line in ops)
    return right, len(modules), named, len(ops)


def _name(op: str | None) -> str:
    return (op or "").replace("_.", ".", 1)


def by_group(measured: Measured) -> list[str]:
    """Detection by kind of fault."""
    rows = [
        "| kind of fault | faults | this harness | dynamo same | cosine 0.999 | PCC 0.99 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for group, count in sorted(Counter(line["group"] for line in measured.faults).items()):
        lines = [line for line in measured.faults if line["group"] == group]
        shown = [str(alarms(lines, name)) for name in (OURS, "dynamo same", "cosine 0.999", "PCC 0.99")]
        rows.append(f"| {group} | {count} | {' | '.join(shown)} |")
    return rows


def misses(measured: Measured) -> list[str]:
    """Faults that this harness did not detect, with what it saw."""
    missed = [line for line in measured.faults if not line["scores"][OURS][1]]
    return [
        f"- `{line['fault']}` in {line['model']}: {line['scores'][OURS][0]:.2f} of the nearest limit used up. "
        f"{line['sentence']}"
        for line in missed
    ] or ["None."]


def false_alarms(measured: Measured) -> list[str]:
    """Clean comparisons that this harness called wrong."""
    lines = [line for line in measured.clean if line["scores"][OURS][1]]
    return [f"- `{line['key']}`: {line['sentence']}" for line in lines] or ["None."]


def page(measured: Measured) -> str:
    """The page."""
    right, modules, named, ops = located(measured.faults)
    wrong = [
        f"- `{line['fault']}` in {line['model']}: found {line['found']['stretch']}, {line['found']['op']}, cause "
        f"{line['found']['cause']}; acts in {line['truth']['module']}"
        for line in measured.faults
        if "found" in line
        and (
            (line["truth"]["module"] is not None and line["found"]["module"] != line["truth"]["module"])
            or (line["truth"]["op"] and _name(line["found"]["op"]) != _name(line["truth"]["op"]))
        )
    ]
    models = sorted({line["model"] for line in (*measured.clean, *measured.faults)})
    dtypes = sorted({line["dtype"] for line in measured.clean})
    parts = [
        TEXT_TOP,
        "## Result",
        *rates(measured),
        "",
        f"Models: {', '.join(models)}. Clean comparisons in {' and '.join(dtypes)}, on one and two threads, each "
        f"with a prompt, batch and length of its own. {len(measured.others)} seeded faults changed nothing beyond "
        f"rounding (or found nothing in the model to act on) and count nowhere; "
        f"{len(measured.raised)} raised an error, which every rule notices.",
        "",
        f"![ROC]({PLOT})",
        "",
        "## By kind",
        *by_group(measured),
        "",
        "## Misses",
        *misses(measured),
        "",
        "The rule widens its limits where an output has few steps, since a single ratio is as much luck as error: "
        "faults that act in one decode step alone can hide there.",
        "",
        "## False alarms",
        *false_alarms(measured),
        "",
        "## Localisation",
        f"Of the detected faults, {right} of {modules} were traced to the module in which they act "
        f"({_percent(right, modules)}), and {named} of {ops} faults in ops to that op ({_percent(named, ops)}). "
        "The rest:",
        "",
        *(wrong or ["None."]),
        "",
        TEXT_END,
    ]
    return "\n".join(parts).rstrip() + "\n"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "none"


COLOURS = ("#0f62fe", "#a56eff", "#9f1853", "#007d79", "#8a3800", "#570408", "#002d9c", "#b28600", "#6f6f6f")


WIDTH, HEIGHT, LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT = 760, 420, 70, 30, 420, 330


def roc(measured: Measured) -> str:
    """Detection against false alarms for every threshold, as SVG."""
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    middle = TOP + PLOT_HEIGHT / 2
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12" role="img"><title>Faults detected against false alarms, for every threshold</title>',
        f'<rect {size} fill="#fff"/>',
        f'<rect x="{LEFT}" y="{TOP}" width="{PLOT_WIDTH}" height="{PLOT_HEIGHT}" fill="none" stroke="#8d8d8d"/>',
        _text(LEFT + PLOT_WIDTH / 2, HEIGHT - 14, "false alarms", "middle"),
        f'<g transform="rotate(-90 18 {middle})">{_text(18, middle, "faults detected", "middle")}</g>',
    ]
    for step in range(0, 101, 20):
        drawn.append(_text(LEFT + PLOT_WIDTH * step / 100, TOP + PLOT_HEIGHT + 18, f"{step}%", "middle"))
        drawn.append(_text(LEFT - 8, TOP + PLOT_HEIGHT * (1 - step / 100) + 4, f"{step}%", "end"))
    for index, name in enumerate(CURVES):
        drawn += _drawn(measured, name, index)
    return "\n".join([*drawn, "</svg>"]) + "\n"


CURVES = (OURS, "dynamo same", "allclose 1e-2", "PCC 0.99", "cosine 0.99", "top-5 membership", "greedy tokens")
LABELS = {OURS: "this harness", "allclose 1e-2": "allclose, Polygraphy", "PCC 0.99": "PCC", "cosine 0.99": "cosine"}


def _drawn(measured: Measured, name: str, index: int) -> list[str]:
    """One curve with its line in the legend."""
    points = [(LEFT + PLOT_WIDTH * x, TOP + PLOT_HEIGHT * (1 - y)) for x, y in curve(measured, name)]
    style = f'stroke="{COLOURS[index]}" stroke-width="{3 if name == OURS else 1.5}"'
    x, y = LEFT + PLOT_WIDTH + 20, TOP + 20 * (index + 1)
    return [
        f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}" fill="none" {style}/>',
        f'<line x1="{x}" x2="{x + 24}" y1="{y - 4}" y2="{y - 4}" {style}/>',
        _text(x + 30, y, f"{LABELS.get(name, name)}: AUC {area(measured, name):.3f}", "start"),
    ]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>'


def curve(measured: Measured, name: str) -> list[tuple[float, float]]:
    """(false alarm rate, detection rate) from the strictest threshold to the laxest."""
    clean = sorted(line["scores"][name][0] for line in measured.clean)
    faults = sorted(line["scores"][name][0] for line in measured.faults)
    points = [(0.0, 0.0)]
    for threshold in sorted({*clean, *faults}, reverse=True):
        false = sum(score >= threshold for score in clean) / max(1, len(clean))
        points.append((false, sum(score >= threshold for score in faults) / max(1, len(faults))))
    return [*points, (1.0, 1.0)]


def area(measured: Measured, name: str) -> float:
    """Area under the curve."""
    points = curve(measured, name)
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))


TEXT_TOP = """\
# Seeded faults: what the verdict detects

Does a verdict find wrong devices, and does it leave right ones alone? This study asks both in one run, of our
rule and of the rules of peers. `nox -s seeded-faults` repeats it and writes this page.

- **Clean comparisons**: an honest emulated device. Every alarm is a false one.
- **Faults**: one at a time, on the device alone. Generic ones: a scaled weight, one outlier, swapped channels, a
  zeroed head, a dropped bias, truncated weights, positions off by one; results of one op variant scaled, half
  zero, shifted by a row, with an outlier, saturated, truncated instead of rounded, with channels swapped, with a
  stale last row; the same in compiled code only. And the silent faults of the emulator's catalogue
  (docs/faults.md). Ops are chosen by op and shape, not by module.
- **What counts**: a fault that changes the output of some module, given the reference's inputs, by more than twice
  the clean device's error plus four roundings of float16, or an integer or non-finite value there; or a final
  output by as much. This was fixed before the study.
- **Thresholds**: frozen in `benchmarks/seeded_faults/frozen.json` before the held-out half was drawn: its random
  seed is the hash of that file.
- **Peers** look at final outputs against the float32 reference; `torch._dynamo.utils.same` and Polygraphy are
  asked themselves, the others follow their public definitions. Token rules see language models only.
"""

TEXT_END = """\
## Again

`nox -s seeded-faults` measures what `reports/runs/seeded-faults.jsonl` lacks and writes this page; `-- --parts tables`
only writes it. After a change of the verdict's limits: `-- --freeze`, with a new measurement file.
"""
