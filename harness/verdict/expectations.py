"""Known failures: strict, of one kind, and not for ever."""

from __future__ import annotations

from datetime import date

from harness.records import Case, Expectation, Outcome, OutcomeKind, Status, Verdict


def apply_expectation(case: Case, outcome: Outcome, verdict: Verdict, today: date) -> Verdict:
    """Return the verdict in the light of what was expected; one without an expectation is unchanged.

    A failure of the expected kind is XFAIL, of another kind FAIL; a pass is XPASS. What proves nothing
    or did not run stays what it is. From its day of expiry on an entry is an ERROR.
    """
    expectation = case.expectation
    if expectation is None or verdict.status not in (Status.PASS, Status.FAIL):
        return verdict
    if expectation.expires is not None and today >= expectation.expires:
        sentence = (
            f"the expectation of {expectation.outcome} expired on {expectation.expires}: renew or remove it "
            f"{_at(case)}({expectation.reason}); now {verdict.status}: {verdict.sentence}"
        )
        return _changed(verdict, Status.ERROR, sentence)
    if verdict.status is Status.PASS:
        sentence = (
            f"passes although {expectation.outcome} is expected, remove the entry {_at(case)}"
            f"({expectation.reason}): {verdict.sentence}"
        )
        return _changed(verdict, Status.XPASS, sentence, stale=_entry(expectation))
    observed = _observed(outcome)
    if observed == expectation.outcome:
        return _changed(verdict, Status.XFAIL, f"{verdict.sentence} (expected: {expectation.reason})")
    sentence = f"{observed} where {expectation.outcome} is expected: {verdict.sentence}"
    return _changed(verdict, Status.FAIL, sentence)


def set_aside(case: Case, outcome: Outcome, verdict: Verdict) -> Verdict:
    """Return the verdict with its status as it is, noting in flags and sentence whether it is what was expected."""
    expectation = case.expectation
    if expectation is None or verdict.status not in (Status.PASS, Status.FAIL):
        return verdict
    passes = verdict.status is Status.PASS
    held = not passes and _observed(outcome) == expectation.outcome
    where = f" at {case.expectation_at}" if case.expectation_at else ""
    return verdict.model_copy(
        update={
            "flags": (*verdict.flags, "as_expected" if held else "unexpected"),
            "sentence": f"{verdict.sentence} ({expectation.outcome} is expected{where}: {expectation.reason})",
            "stale_expectation": _entry(expectation) if passes else None,
        }
    )


def _observed(outcome: Outcome) -> str:
    """Return what happened in the words of an expectation."""
    return "outside_rule" if outcome.kind is OutcomeKind.COMPLETED else outcome.kind


def _changed(verdict: Verdict, status: Status, sentence: str, stale: str | None = None) -> Verdict:
    return verdict.model_copy(update={"status": status, "sentence": sentence, "stale_expectation": stale})


def _at(case: Case) -> str:
    return f"at {case.expectation_at} " if case.expectation_at else ""


def _entry(expectation: Expectation) -> str:
    """Return the entry so that it can be found in the manifest and removed."""
    link = f", {expectation.issue}" if expectation.issue else ""
    return f"{expectation.outcome}: {expectation.reason}{link}"
