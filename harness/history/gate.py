"""May this run be released? A policy against a run and the baseline; the answer is a text to sign off."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase

from harness.history.baseline import Baseline, against
from harness.history.views import RunView
from harness.records import ExpectationMode, Policy, Status, Waiver


@dataclass(frozen=True)
class Objection:
    """One thing that does not hold."""

    case: str
    """Empty for what is wrong with the run or the policy as a whole."""
    text: str
    waiver: Waiver | None = None


@dataclass(frozen=True)
class GateResult:
    """The answer of a gate."""

    accepted: bool
    objections: tuple[Objection, ...]
    """What does not hold, waived or not."""
    text: str
    """The answer in Markdown: the same input gives the same text, and its last line seals what is above."""


def gate(run: RunView, policy: Policy, today: date, baseline: Baseline | None = None) -> GateResult:
    """Return whether a run may be released.

    Refused are: a run that is partial, incomplete or damaged; a requirement that is not met or matches no case; any
    difference from the baseline, also for the better, since that has to be accepted there first; a waiver
    that has expired or that nothing needs. Waivers cover single cases, never the run or the policy.
    """
    raw = [*_whole(run), *_required(run, policy)]
    if baseline is not None:
        raw += [
            Objection(change.case, f"{change.kind} against the baseline: {change.sentence}")
            for change in against(baseline, run)
        ]
    found = [Objection(one.case, one.text, _waiver(one, policy, today)) for one in raw]
    found += _waivers(found, policy, today)
    refused = [one for one in found if one.waiver is None]
    accepted = not refused or policy.mode == "validate"
    return GateResult(accepted, tuple(found), _text(run, policy, today, found, baseline))


def _whole(run: RunView) -> Iterator[Objection]:
    if run.partial:
        yield Objection("", f"the run is a part of its profile only: {run.selection}")
    if run.expectations is ExpectationMode.VALIDATE:
        yield Objection("", "the run set expectations aside (validate), so nothing in it is known or unexpected")
    if not run.finished:
        yield Objection("", "the run has not ended")
    if run.damage:
        yield Objection("", f"the run is damaged: {run.first_damage}")
    for name in run.missing:
        yield Objection("", f"{name} was planned and has no result")
    for name, sample in sorted(run.samples.items()):
        if "drilled" in sample.flags:
            yield Objection("", f"{name} ran with faults injected on purpose")


def _required(run: RunView, policy: Policy) -> Iterator[Objection]:
    for entry in policy.require:
        matched = [name for name in sorted(run.samples) if fnmatchcase(name, entry.cases)]
        if not matched:
            yield Objection("", f"the requirement {entry.cases!r} matches no case, so it proves nothing")
        for name in matched:
            sample = run.samples[name]
            if sample.status is Status.NOTRUN and sample.kind in policy.allow_notrun:
                continue
            if sample.status not in entry.status:
                wanted = " or ".join(entry.status)
                why = f": {sample.sentence}" if sample.sentence else ""
                yield Objection(name, f"{sample.status} ({sample.kind}) where {wanted} is required{why}")


def _waiver(objection: Objection, policy: Policy, today: date) -> Waiver | None:
    if not objection.case:
        return None
    valid = (entry for entry in policy.waivers if entry.expires > today)
    return next((entry for entry in valid if fnmatchcase(objection.case, entry.cases)), None)


def _waivers(found: Sequence[Objection], policy: Policy, today: date) -> Iterator[Objection]:
    """Yield objections to the waivers themselves."""
    for entry in policy.waivers:
        if entry.expires <= today:
            yield Objection("", f"the waiver of {entry.owner} for {entry.cases!r} expired on {entry.expires}")
        elif not any(one.waiver is entry for one in found):
            yield Objection("", f"the waiver of {entry.owner} for {entry.cases!r} is not needed; remove it")


def _text(run: RunView, policy: Policy, today: date, found: Sequence[Objection], baseline: Baseline | None) -> str:
    refused = [one for one in found if one.waiver is None]
    waived = [one for one in found if one.waiver is not None]
    answer = "REFUSED" if refused else "ACCEPTED"
    if refused and policy.mode == "validate":
        answer = "REPORTED (mode validate refuses nothing)"
    counts = {status: sum(s.status is status for s in run.samples.values()) for status in Status}
    lines = [
        f"# Release gate: {answer}",
        "",
        f"- run: {run.run_id} of {run.started:%Y-%m-%d}, profile {run.profile or 'all'}, {run.lane}",
        f"- commit: {run.environment.commit or 'unknown'}",
        f"- cases: {', '.join(f'{status} {count}' for status, count in counts.items() if count) or 'none'}",
        f"- packages: {', '.join(f'{p.name} {p.version}' for p in run.environment.packages) or 'unknown'}",
        f"- policy: {_digest(policy.model_dump_json())}, {len(policy.require)} requirements, "
        f"{len(policy.waivers)} waivers",
        f"- baseline: {_digest(baseline.text()) if baseline else 'none'}",
        f"- judged on: {today}",
    ]
    if refused:
        lines += ["", f"## Not as required ({len(refused)})", ""]
        lines += [f"- {_line(one)}" for one in refused]
    if waived:
        lines += ["", f"## Waived ({len(waived)})", ""]
        lines += [f"- {_line(one)} Waived {_by(one.waiver)}" for one in waived if one.waiver]
    body = "".join(f"{_printable(line)}\n" for line in lines)
    return f"{body}\nseal: sha256 {hashlib.sha256(body.encode('utf-8', 'replace')).hexdigest()}\n"


def _line(objection: Objection) -> str:
    text = " ".join(objection.text.split()).rstrip(".")
    return f"`{objection.case}`: {text}." if objection.case else f"{text}."


def _printable(line: str) -> str:
    """Return a line that stays one: what is signed is what a terminal and a viewer show."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)


def _by(waiver: Waiver) -> str:
    issue = f" ({waiver.issue})" if waiver.issue else ""
    return f"by {waiver.owner} until {waiver.expires}: {waiver.reason}{issue}"


def _digest(text: str) -> str:
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"
