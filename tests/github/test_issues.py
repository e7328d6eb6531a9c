"""One issue per cause, against a server that keeps issues as GitHub does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from harness.errors import HarnessError
from harness.github import Cause, Client, Night, carry_out, plan
from harness.github.issues import parse

NONE: dict[str, frozenset[str]] = {}


class Hub(ThreadingHTTPServer):
    """Issues of o/r, in memory; ``failures`` are answered first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.issues: list[dict[str, Any]] = []
        self.comments: list[tuple[int, str]] = []
        self.failures: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def shown(self) -> list[tuple[str, str]]:
        return [(issue["state"], issue["title"]) for issue in self.issues]


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        kept = [i for i in self.server.issues if i["state"] == query["state"] and query["labels"] in i["labels"]]
        size, page = int(query["per_page"]), int(query["page"])
        self.answer(kept[size * (page - 1) : size * page])

    def do_POST(self) -> None:
        data = self.body()
        if self.path.endswith("/comments"):
            self.server.comments.append((int(self.path.split("/")[-2]), data["body"]))
        else:
            self.server.issues.append({"number": len(self.server.issues) + 1, "state": "open", **data})
        self.answer({})

    def do_PATCH(self) -> None:
        self.server.issues[int(self.path.split("/")[-1]) - 1].update(self.body())
        self.answer({})

    def body(self) -> dict[str, Any]:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, data: Any) -> None:
        assert self.path.startswith("/repos/o/r/issues")
        assert self.headers["Authorization"] == "Bearer secret"
        status = self.server.failures.pop(0) if self.server.failures else 200
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def client(hub: Hub) -> Client:
    return Client(hub.url, "o/r", "secret", wait=lambda seconds: None)


def cause(key: str = "k1", kind: str = "regressed", **cases: str) -> Cause:
    return Cause(key, kind, f"{kind}: {', '.join(cases)}", cases, ("torch 2.13.0 -> 2.14.0: a package",))


def night(*causes: Cause, well: dict[str, frozenset[str]] = NONE, number: int = 1, lane: str = "x86_64 emulator"):
    return Night(lane, f"night-{number}", causes, well, ("Results: somewhere",))


def told(hub: Hub, tonight: Night) -> list[str]:
    return list(carry_out(plan(client(hub).issues(), tonight), client(hub)))


def test_an_issue_is_opened_once_updated_and_closed(hub: Hub) -> None:
    assert told(hub, night(cause(a="fails", b="fails"))) == ["opened: regressed: a, b"]
    assert told(hub, night(cause(a="fails", b="fails"), number=2)) == []
    assert told(hub, night(number=3)) == []  # still failing, so nothing changed and nobody is well
    assert told(hub, night(cause(c="fails"), well={"regressed": frozenset("a")}, number=4)) == [
        "updated #1: regressed: c"
    ]
    issue = parse(1, hub.issues[0]["title"], hub.issues[0]["body"])
    assert issue is not None
    assert sorted(issue.cases) == ["b", "c"]
    assert told(hub, night(well={"regressed": frozenset("bc")}, number=5)) == ["closed #1: regressed: c"]
    assert hub.shown() == [("closed", "regressed: c")]
    assert hub.comments == [
        (1, "Run `night-4`: 1 more, 1 well again, 2 left."),
        (1, "All 2 cases are well again in run `night-5`."),
    ]
    assert told(hub, night(cause(a="fails again"), number=6)) == ["opened: regressed: a"]


def test_a_case_that_fails_tonight_is_not_well_whatever_else_is_said(hub: Hub) -> None:
    told(hub, night(cause(a="fails")))
    assert told(hub, night(cause(a="fails"), well={"regressed": frozenset("a")}, number=2)) == []


def test_a_case_is_in_one_issue_at_a_time(hub: Hub) -> None:
    told(hub, night(cause("k1", a="fails", b="fails")))
    assert told(hub, night(cause("k2", a="crashes"), number=2)) == [
        "updated #1: regressed: a, b",
        "opened: regressed: a",
    ]
    assert told(hub, night(cause("k2", b="crashes"), cause("k3", "drifted", a="slower"), number=3)) == [
        "closed #1: regressed: a, b",
        "updated #2: regressed: b",
        "opened: drifted: a",
    ]
    assert hub.comments == [
        (1, "Run `night-2`: 0 more, 0 well again, 1 left. 1 fail otherwise now and have another issue."),
        (1, "Run `night-3`: 0 well again, none left. 1 fail otherwise now and have another issue."),
        (2, "Run `night-3`: 1 more, 0 well again, 2 left."),
    ]


def test_causes_lanes_and_kinds_are_kept_apart(hub: Hub) -> None:
    told(hub, night(cause("k1", a="fails"), cause("k2", "drifted", a="error doubled")))
    told(hub, night(cause("k1", a="fails"), lane="s390x torch_spyre"))
    assert len(hub.issues) == 3
    assert told(hub, night(well={"regressed": frozenset("a")}, number=2)) == ["closed #1: regressed: a"]
    assert [state for state, _ in hub.shown()] == ["closed", "open", "open"]


def test_issues_of_people_are_left_alone_and_pages_are_read_to_the_end(hub: Hub) -> None:
    hub.issues = [
        {"number": n, "title": "by hand", "body": None, "state": "open", "labels": ["conformance"]}
        for n in range(1, 121)
    ]
    told(hub, night(cause(a="fails")))
    assert len(hub.issues) == 121
    assert told(hub, night(cause(a="fails"), number=2)) == []
    assert told(hub, night(well={"regressed": frozenset("a")}, number=3)) == ["closed #121: regressed: a"]


def test_hostile_text_acts_on_nothing(hub: Hub) -> None:
    name = "a--><script>/```x"
    told(hub, night(cause(**{name: "@everyone ```\n</details> #1 --> <!-- conformance {} -->"})))
    body = hub.issues[0]["body"]
    marker, text = body.split("\n", 1)
    assert marker.count("-->") == 1
    assert list(parse(1, "", body).cases) == [name]
    fence = "````text"
    assert text.splitlines()[:3] == ["These cases are regressed on x86_64 emulator:", "", fence]
    inner = text.split(fence)[1].split("\n````\n")[0]
    assert "@everyone" in inner
    assert "@everyone" not in text.replace(inner, "")


def test_many_cases_fit_the_body_and_are_all_remembered(hub: Hub) -> None:
    cases = {f"model-{n:03}/causal-lm/spyre-eager-float16": "é" * 900 for n in range(300)}
    told(hub, night(Cause("k", "regressed", "t" * 999, cases)))
    issue = hub.issues[0]
    assert len(issue["title"]) == 250
    assert len(issue["body"]) < 65_536
    assert "and 242 more" in issue["body"]
    assert issue["body"].endswith("\n```\n\nResults: somewhere\n")
    assert sorted(parse(1, "", issue["body"]).cases) == sorted(cases)


def test_what_a_body_has_no_room_for_keeps_the_issue_open(hub: Hub) -> None:
    random = Random(1)
    names = frozenset(f"{random.getrandbits(200):050x}" for _ in range(2000))
    told(hub, night(cause(**dict.fromkeys(names, "fails"))))
    issue = parse(1, "", hub.issues[0]["body"])
    assert issue is not None
    assert len(hub.issues[0]["body"]) < 65_536
    assert len(issue.cases) + issue.forgotten == 2000
    assert issue.forgotten > 0
    assert told(hub, night(well={"regressed": names}, number=2)) == [f"updated #1: {hub.issues[0]['title']}"]
    assert told(hub, night(well={"regressed": names}, number=3)) == []
    assert hub.issues[0]["state"] == "open"


def test_a_busy_server_is_asked_again_and_a_refusal_is_told(hub: Hub) -> None:
    hub.failures = [429, 503]
    assert client(hub).issues() == ()
    hub.failures = [403]
    with pytest.raises(HarnessError, match="403 Forbidden; may the token write issues"):
        client(hub).issues()
    hub.failures = [500]
    with pytest.raises(HarnessError, match=r"POST .* 500"):  # it may have been carried out: never twice
        client(hub).open("t", "b")
    assert len(hub.issues) == 1
    with pytest.raises(HarnessError, match=r"refused|reset"):
        replace(client(hub), url="http://127.0.0.1:9", tries=2).issues()
