"""Whose change it was: what differs between two environments, the likeliest suspect first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from harness.history.views import RunView
from harness.records import Change, Environment, Mode

Kind = Literal["fault", "device", "checkpoint", "package", "harness", "threads", "variable", "host"]

PACKAGE_WEIGHT = {
    "torch-spyre": 0.95,
    "torch": 0.8,
    "transformers": 0.7,
    "tokenizers": 0.4,
    "safetensors": 0.25,
    "accelerate": 0.25,
    "gguf": 0.25,
    "numpy": 0.15,
    "huggingface-hub": 0.1,
}
"""How near a package is to the numbers: the device's stack, then the model code, then what carries data."""
OTHER_PACKAGE = 0.1
VARIABLE_WEIGHT = 0.35
NUMERIC_VARIABLES = ("SPYRE_EMULATOR", "ATEN_CPU_CAPABILITY", "ONEDNN", "TORCH_SPYRE", "SEN", "LX_", "DXP_")


@dataclass(frozen=True)
class Suspect:
    """One difference between two environments, and how likely it explains a change."""

    kind: Kind
    name: str
    before: str
    after: str
    weight: float
    """From 0 to 1; an order, not a probability."""
    reason: str

    def __str__(self) -> str:
        return f"{self.name} {self.before} -> {self.after}: {self.reason}"


def explain(before: Environment, after: Environment, change: Change | None = None) -> tuple[Suspect, ...]:
    """Return what differs between two environments, likeliest first; empty when nothing recorded does.

    With a ``change`` its mode and metric move the weights: a compiled case points to the compiler's package,
    a time to threads and host.
    """
    found = [
        *_device(before, after),
        *_packages(before, after),
        *_harness(before, after),
        *_settings(before, after),
        *_host(before, after),
    ]
    if change is not None:
        found = [_in_view_of(change, suspect) for suspect in found]
    return tuple(sorted(found, key=lambda suspect: (-suspect.weight, suspect.name)))


def explain_change(runs: Sequence[RunView], change: Change) -> tuple[Suspect, ...]:
    """Return the suspects of a change: the run that first shows it against the last run before it.

    A suspect that also changed between other runs in which the case stayed as it was counts half each time.
    """
    by_id = {run.run_id: run for run in runs}
    if change.before not in by_id or change.since not in by_id:
        return ()
    then, now = by_id[change.before], by_id[change.since]
    suspects = list(explain(then.environment, now.environment, change))
    one, other = then.samples.get(change.case), now.samples.get(change.case)
    if one and other and one.checkpoint and other.checkpoint and one.checkpoint != other.checkpoint:
        what = ("checkpoint", one.checkpoint[:12], other.checkpoint[:12], 0.97, "other weights were tested")
        suspects.append(Suspect("checkpoint", *what))
    suspects = [_acquitted(runs, change, suspect) for suspect in suspects]
    return tuple(sorted(suspects, key=lambda suspect: (-suspect.weight, suspect.name)))


def _acquitted(runs: Sequence[RunView], change: Change, suspect: Suspect) -> Suspect:
    """Lower a suspect's weight for each time that it changed while the case did not."""
    ordered = sorted((run for run in runs if change.case in run.samples), key=lambda run: run.started)
    weight, alibis = suspect.weight, 0
    for one, other in pairwise(ordered):
        same = one.samples[change.case].status is other.samples[change.case].status
        elsewhere = other.run_id != change.since and same
        if elsewhere and any(_is(suspect, s) for s in explain(one.environment, other.environment)):
            alibis += 1
    if not alibis:
        return suspect
    reason = f"{suspect.reason}; it also changed {alibis} times without effect"
    values = (suspect.before, suspect.after, weight * 0.5**alibis, reason)
    return Suspect(suspect.kind, suspect.name, *values)


def _is(one: Suspect, other: Suspect) -> bool:
    return (one.kind, one.name) == (other.kind, other.name)


def _device(before: Environment, after: Environment) -> Iterator[Suspect]:
    for key in sorted(before.device.keys() | after.device.keys()):
        old, new = before.device.get(key, "none"), after.device.get(key, "none")
        if old == new:
            continue
        if "fault" in key:
            yield Suspect("fault", f"device {key}", old, new, 1.0, "faults were switched on or off")
        elif key == "kind":
            yield Suspect("device", "device", old, new, 0.99, "another kind of device")
        else:
            yield Suspect("device", f"device {key}", old, new, 0.9, "the device under test differs")


def _packages(before: Environment, after: Environment) -> Iterator[Suspect]:
    old = {package.name: package.version for package in before.packages}
    new = {package.name: package.version for package in after.packages}
    for name in sorted(old.keys() | new.keys()):
        then, now = old.get(name, "none"), new.get(name, "none")
        if then == now or name == "spyre-conformance":
            continue
        weight = PACKAGE_WEIGHT.get(name, OTHER_PACKAGE)
        size, factor = _jump(then, now)
        yield Suspect("package", name, then, now, weight * factor, f"{size} of a package near the numbers")


def _jump(then: str, now: str) -> tuple[str, float]:
    """Return how far two versions are apart, and what that does to the weight."""
    one, other = ([int(n) for n in re.findall(r"\d+", text)[:3]] for text in (then, now))
    if not one or not other:
        return "appearance or disappearance", 1.0
    if one[:1] != other[:1]:
        return "major release", 1.0
    if one[1:2] != other[1:2]:
        return "minor release", 0.97
    return ("patch release", 0.9) if one != other else ("another build", 0.85)


def _harness(before: Environment, after: Environment) -> Iterator[Suspect]:
    if before.commit != after.commit:
        old, new = before.commit or "unknown", after.commit or "unknown"
        dirty = 0.1 if "+dirty" in new + old else 0.0
        why = "the harness and the emulator themselves" + (", with uncommitted changes" if dirty else "")
        yield Suspect("harness", "commit", old, new, 0.5 + dirty, why)
    elif before.harness_version != after.harness_version:
        versions = (before.harness_version, after.harness_version)
        yield Suspect("harness", "harness", *versions, 0.5, "another release of the harness")


def _settings(before: Environment, after: Environment) -> Iterator[Suspect]:
    for key in sorted(before.variables.keys() | after.variables.keys()):
        old, new = before.variables.get(key, "unset"), after.variables.get(key, "unset")
        if old != new:
            numeric = key.startswith(NUMERIC_VARIABLES)
            kind: Kind = "fault" if "FAULT" in key else "variable"
            weight = 1.0 if kind == "fault" else 0.75 if numeric else VARIABLE_WEIGHT
            yield Suspect(kind, key, old, new, weight, "an environment variable that acts on results")
    for name, old_count, new_count in (
        ("threads_per_case", before.threads_per_case, after.threads_per_case),
        ("workers", before.workers, after.workers),
    ):
        if old_count != new_count:
            why = "another order of additions, another speed"
            yield Suspect("threads", name, str(old_count), str(new_count), 0.3, why)


def _host(before: Environment, after: Environment) -> Iterator[Suspect]:
    for name, weight in (
        ("machine", 0.85),
        ("cpu", 0.3),
        ("python", 0.3),
        ("platform", 0.15),
        ("cores", 0.1),
        ("memory", 0.05),
    ):
        old, new = str(getattr(before, name)), str(getattr(after, name))
        if old != new:
            yield Suspect("host", name, old, new, weight, "another host")


def _in_view_of(change: Change, suspect: Suspect) -> Suspect:
    factor = 1.0
    if change.metric == "run_seconds":
        factor = 2.5 if suspect.kind in ("threads", "host") else 0.9
    elif suspect.kind in ("threads", "host") and suspect.name != "machine":
        factor = 0.7
    if f"-{Mode.COMPILED}-" in change.case and suspect.name in ("torch", "torch-spyre"):
        factor *= 1.1
    weight = min(1.0, suspect.weight * factor)
    return Suspect(suspect.kind, suspect.name, suspect.before, suspect.after, weight, suspect.reason)
