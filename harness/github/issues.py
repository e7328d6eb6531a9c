"""Regressions as issues: one per cause, opened, kept up to date, and closed when all its cases are well again.

What an issue is about stands in its own body, in a comment that readers do not see; nothing else remembers it,
so a lost cache or a second workflow opens no second issue.
"""

from __future__ import annotations

import base64
import json
import re
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from harness.errors import HarnessError
from harness.github.night import Cause, Night

LABEL = "conformance"
LISTED_CHARACTERS = 20_000
"""Of cases that a body lists; the rest is counted, and remembered all the same."""
REMEMBERED_CHARACTERS = 40_000
"""Of the packed ids that a body remembers. GitHub refuses a body of more than 65,536 characters."""
_MARKER = re.compile(r"<!-- conformance (\{.*?\}) -->")


@dataclass(frozen=True)
class Issue:
    """An open issue, as far as it matters here."""

    number: int
    title: str
    lane: str
    key: str
    kind: str
    cases: Mapping[str, str]
    forgotten: int = 0
    """Cases that the body had no room for; with any, only people can close the issue."""


@dataclass(frozen=True)
class Action:
    """One thing to do."""

    what: Literal["open", "update", "close"]
    number: int | None
    title: str
    body: str
    comment: str = ""


class Tracker(Protocol):
    """Where issues live."""

    def open(self, title: str, body: str) -> None:
        """Open an issue."""

    def edit(self, number: int, title: str, body: str, *, close: bool) -> None:
        """Replace an issue's texts, and close it."""

    def comment(self, number: int, text: str) -> None:
        """Say something below an issue."""


def plan(issues: Sequence[Issue], night: Night) -> tuple[Action, ...]:
    """Return what brings the open issues up to tonight; a night without news asks for nothing.

    A case leaves its issue when it is well, and when another cause of the same kind has it tonight, so that it is
    in one issue at a time; without a result it stays. The last one closes the issue.
    """
    causes = {cause.key: cause for cause in night.causes}
    actions: list[Action] = []
    known: set[str] = set()
    for issue in issues:
        if issue.lane != night.lane or issue.key in known:
            continue
        known.add(issue.key)
        actions += _follow(issue, causes.get(issue.key), night)
    actions += [
        Action("open", None, cause.title, _body(cause, night)) for key, cause in causes.items() if key not in known
    ]
    return tuple(actions)


def _follow(issue: Issue, cause: Cause | None, night: Night) -> Iterator[Action]:
    """Yield what brings one issue up to tonight, where there is news."""
    added = dict(cause.cases) if cause else {}
    well = night.well.get(issue.kind, frozenset()) - added.keys()
    elsewhere = {name for other in night.causes if other.kind == issue.kind for name in other.cases} - added.keys()
    left = {name: text for name, text in issue.cases.items() if name not in well | elsewhere}
    moved, fixed = issue.cases.keys() & elsewhere, (issue.cases.keys() & well) - elsewhere
    fresh = added.keys() - issue.cases.keys()
    now = Cause(
        issue.key, issue.kind, cause.title if cause else issue.title, left | added, cause.suspects if cause else ()
    )
    goes = f" {len(moved)} fail otherwise now and have another issue." if moved else ""
    if not now.cases and not issue.forgotten:
        done = {name: text for name, text in issue.cases.items() if name in fixed | moved}
        said = f"All {len(fixed)} cases are well again in run `{night.run_id}`."
        if moved:
            said = f"Run `{night.run_id}`: {len(fixed)} well again, none left.{goes}"
        yield Action("close", issue.number, issue.title, _body(_of(now, done), night, "were"), said)
    elif fixed or fresh or moved:
        said = f"Run `{night.run_id}`: {len(fresh)} more, {len(fixed)} well again, {len(now.cases)} left.{goes}"
        yield Action("update", issue.number, now.title, _body(now, night, forgotten=issue.forgotten), said)


def _of(cause: Cause, cases: Mapping[str, str]) -> Cause:
    return Cause(cause.key, cause.kind, cause.title, cases, cause.suspects)


def _body(cause: Cause, night: Night, verb: str = "are", forgotten: int = 0) -> str:
    """Return an issue's body; what a model or a device said is inside fences, where nothing acts on it."""
    lines = list(_listed(cause.cases))
    text = f"These cases {verb} {cause.kind} on {night.lane}:\n\n{_fenced(lines)}\n"
    if cause.suspects:
        text += f"\nWhat differs from the run before, likeliest first:\n\n{_fenced(cause.suspects)}\n"
    text += "\n" + "\n".join(night.links) + "\n"
    return f"{_marker(cause, night, forgotten)}\n{text}"


def _listed(cases: Mapping[str, str]) -> Iterator[str]:
    room = LISTED_CHARACTERS
    for number, (name, text) in enumerate(cases.items()):
        line = f"{name}\n    {' '.join(text.split())[:300]}"
        room -= len(line)
        if room < 0:
            yield f"and {len(cases) - number} more"
            return
        yield line


def _fenced(lines: Sequence[str]) -> str:
    inner = "\n".join(lines)
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", inner)), default=0) + 1)
    return f"{fence}text\n{inner}\n{fence}"


def _marker(cause: Cause, night: Night, forgotten: int) -> str:
    names = sorted(cause.cases)
    packed, kept = _pack(names), len(names)
    while len(packed) > REMEMBERED_CHARACTERS:
        kept = kept * 3 // 4
        packed = _pack(names[:kept])
    forgotten += len(names) - kept
    facts = {"lane": night.lane, "key": cause.key, "kind": cause.kind, "cases": packed, "forgotten": forgotten}
    # Neither ends the comment early: JSON knows both characters by their code points.
    text = json.dumps(facts, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")
    return f"<!-- conformance {text} -->"


def _pack(names: Sequence[str]) -> str:
    return base64.b64encode(zlib.compress("\n".join(names).encode(), 9)).decode()


def parse(number: int, title: str, body: str) -> Issue | None:
    """Return an issue from its body; None for one that people wrote."""
    found = _MARKER.search(body)
    if found is None:
        return None
    try:
        facts = json.loads(found[1])
        names = zlib.decompress(base64.b64decode(facts["cases"], validate=True)).decode().splitlines()
        lane, key, kind = (str(facts[name]) for name in ("lane", "key", "kind"))
        return Issue(number, title, lane, key, kind, dict.fromkeys(names, "as before"), int(facts["forgotten"]))
    except (ValueError, KeyError, TypeError, zlib.error):
        return None


def carry_out(actions: Sequence[Action], tracker: Tracker) -> Iterator[str]:
    """Do it; yields a line for each thing done."""
    for action in actions:
        if action.number is None:
            tracker.open(action.title, action.body)
            yield f"opened: {action.title}"
            continue
        tracker.comment(action.number, action.comment)
        tracker.edit(action.number, action.title, action.body, close=action.what == "close")
        yield f"{action.what}d #{action.number}: {action.title}"


@dataclass
class Client:
    """GitHub's issues of one repository."""

    url: str
    """Of the API, e.g. GITHUB_API_URL."""
    repository: str
    """owner/name."""
    token: str = field(repr=False)
    wait: Callable[[float], None] = time.sleep
    tries: int = 4

    def issues(self) -> tuple[Issue, ...]:
        """Return the open issues that this module opened, oldest first."""
        found: list[Issue] = []
        for page in range(1, 101):
            query = f"?state=open&labels={LABEL}&sort=created&direction=asc&per_page=100&page={page}"
            listed = self._ask("GET", query)
            for one in listed:
                issue = parse(one["number"], one["title"], one.get("body") or "")
                if issue is not None and "pull_request" not in one:
                    found.append(issue)
            if len(listed) < 100:
                break
        return tuple(found)

    def open(self, title: str, body: str) -> None:
        """Open an issue."""
        self._ask("POST", "", {"title": title[:250], "body": body, "labels": [LABEL]})

    def edit(self, number: int, title: str, body: str, *, close: bool) -> None:
        """Replace an issue's texts, and close it."""
        state = {"state": "closed", "state_reason": "completed"} if close else {}
        self._ask("PATCH", f"/{number}", {"title": title[:250], "body": body, **state})

    def comment(self, number: int, text: str) -> None:
        """Say something below an issue."""
        self._ask("POST", f"/{number}/comments", {"body": text})

    def _ask(self, method: str, path: str, data: Mapping[str, Any] | None = None) -> Any:
        url = f"{self.url}/repos/{self.repository}/issues{path}"
        request = urllib.request.Request(  # noqa: S310 - the API's address, from the workflow
            url,
            method=method,
            data=None if data is None else json.dumps(data).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )
        for number in range(1, self.tries + 1):
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                # Busy, or asked too often; a POST that failed otherwise may have been carried out.
                passing = error.code == 429 or (error.code >= 500 and method != "POST")
                reason = f"{error.code} {error.reason}"
                error.close()
            except OSError as error:
                passing, reason = method != "POST", str(error)
            if not passing or number == self.tries:
                raise HarnessError(f"{method} {url}: {reason}; may the token write issues?")
            self.wait(2.0**number)
        raise AssertionError("the loop returns or raises")
