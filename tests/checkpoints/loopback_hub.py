"""A Hugging Face Hub on 127.0.0.1 for tests: serves folders as model repositories, with scripted faults.

It answers what huggingface_hub 2.4 asks when it reads models: the description, the tree and the files
of a repository at a commit. Large files are redirected to a second port, because the real Hub's content
service is another origin: on one origin the client would follow the redirect of its HEAD and lose the
commit. Standard library only; reads only.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self

LARGE = ("*.safetensors", "*.bin", "*.onnx", "*.pt", "*.gguf", "*.model")
"""Stored with Git LFS, as a repository's .gitattributes usually has it."""
GOOD_TOKEN = "hf_goodgoodgood"
Place = Literal["root", "tree", "resolve", "content"]
Kind = Literal["status", "reset", "slow", "drop", "short", "stall", "corrupt", "ignore-range", "no-commit"]


@dataclass
class Fault:
    """What goes wrong with the next matching requests."""

    place: Place
    kind: Kind
    """``status`` answers with `status`; ``reset`` closes at once; ``slow`` waits and answers; ``drop``
    promises all and sends `at` bytes; ``short`` promises and sends `at` bytes; ``stall`` sends `at` bytes
    and waits; ``corrupt`` flips a bit; ``ignore-range`` answers 200; ``no-commit`` leaves X-Repo-Commit out."""
    repository: str = "*"
    file: str = "*"
    method: str = "*"
    times: int = 1
    """Requests it spoils; -1: all."""
    status: int = 503
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    at: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Entry:
    """One file of a commit."""

    path: Path
    size: int
    git_sha1: str
    sha256: str | None
    """Of large files."""

    @classmethod
    def of(cls, path: Path, name: str) -> Entry:
        """Return the entry of the file at PATH, stored as NAME."""
        data = path.read_bytes()
        large = any(fnmatchcase(name, pattern) for pattern in LARGE)
        return cls(
            path,
            len(data),
            hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(),
            hashlib.sha256(data).hexdigest() if large else None,
        )

    def row(self, name: str) -> dict[str, Any]:
        """Return the file as the tree lists it."""
        row: dict[str, Any] = {"type": "file", "path": name, "size": self.size, "oid": self.git_sha1}
        if self.sha256 is not None:
            row["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": 135}
        return row


@dataclass
class Repository:
    """Commits and who may read them."""

    commits: dict[str, dict[str, Entry]] = field(default_factory=dict)
    gated: Literal["open", "terms", "denied"] = "open"
    private: bool = False


@dataclass(frozen=True)
class Seen:
    """A request as it was answered. Status 0: not at all."""

    method: str
    path: str
    status: int
    range: str | None
    authorized: bool


class Hub:
    """Repositories, faults to come and requests seen. Use as a context manager; `url` is the endpoint."""

    def __init__(self, *, page: int = 1000, xet: bool = False) -> None:
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, Path] = {}
        self.faults: list[Fault] = []
        self.requests: list[Seen] = []
        self.page = page
        """Rows of a tree per answer."""
        self.xet = xet
        """Advertise a xet content service, which then never answers."""
        self._lock = threading.Lock()
        self._servers: list[_Server] = []

    def add(self, repository: str, folder: Path, **access: Any) -> str:
        """Serve FOLDER as a commit of REPOSITORY and return its 40-digit id, derived from the contents."""
        files = {
            path.relative_to(folder).as_posix(): Entry.of(path, path.relative_to(folder).as_posix())
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        listing = json.dumps([repository, [(name, entry.git_sha1) for name, entry in files.items()]])
        commit = hashlib.sha1(listing.encode()).hexdigest()
        kept = self.repositories.setdefault(repository, Repository(**access))
        kept.commits[commit] = files
        self.blobs |= {entry.sha256: entry.path for entry in files.values() if entry.sha256 is not None}
        return commit

    def spoil(self, place: Place, kind: Kind, **details: Any) -> None:
        """Script a fault for requests to come."""
        self.faults.append(Fault(place, kind, **details))

    def take(self, place: Place, repository: str, file: str, method: str) -> Fault | None:
        """Return the fault for this request, used up by one."""
        with self._lock:
            for fault in self.faults:
                matches = (
                    fault.place == place
                    and fault.times != 0
                    and fnmatchcase(repository, fault.repository)
                    and fnmatchcase(file, fault.file)
                    and fault.method in ("*", method)
                )
                if matches:
                    fault.times -= 1
                    return fault
        return None

    def asked(self, pattern: str, method: str = "*") -> list[Seen]:
        """Return the requests whose path matches PATTERN."""
        return [
            seen
            for seen in self.requests
            if fnmatchcase(seen.path, pattern) and (method == "*" or seen.method == method)
        ]

    def __enter__(self) -> Self:
        handler = type("BoundHandler", (_Handler,), {"hub": self})
        self._servers = [_Server(("127.0.0.1", 0), handler) for _ in range(2)]
        self.url, self.content_url = (f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers)
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None:
        """Keep quiet: clients that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        """Keep quiet: `Hub.requests` is the log."""

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = {name: values[0] for name, values in urllib.parse.parse_qs(url.query).items()}
        for pattern, route in _ROUTES:
            if found := re.fullmatch(pattern, url.path):
                route(self, *(urllib.parse.unquote(part) for part in found.groups()), **{"query": query})
                return
        self.refuse(404, message="Not found")

    do_HEAD = do_GET  # noqa: N815 (the name that the base class calls)

    # ---- routes

    def root(self, *, query: dict[str, str]) -> None:
        if not self.spoiled(self.hub.take("root", "", "", self.command)):
            self.reply(200, b"a loopback hub")

    def tree(self, repository: str, commit: str, *, query: dict[str, str]) -> None:
        if self.spoiled(self.hub.take("tree", repository, "", self.command)):
            return
        files = self.files(repository, commit)
        if files is None:
            return
        rows = [entry.row(name) for name, entry in files.items()]
        rows += [{"type": "directory", "oid": "0" * 40, "size": 0, "path": name} for name in _directories(files)]
        at = int(query.get("cursor", 0))
        headers = {}
        if at + self.hub.page < len(rows):
            path = urllib.parse.urlsplit(self.path).path
            headers["Link"] = f'<{self.hub.url}{path}?recursive=true&cursor={at + self.hub.page}>; rel="next"'
        self.reply(200, json.dumps(rows[at : at + self.hub.page]).encode(), headers)

    def resolve(self, repository: str, commit: str, file: str, *, query: dict[str, str]) -> None:
        fault = self.hub.take("resolve", repository, file, self.command)
        if self.spoiled(fault):
            return
        files = self.files(repository, commit)
        if files is None:
            return
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if fault is not None and fault.kind == "no-commit":
            del headers["X-Repo-Commit"]
        entry = files.get(file)
        if entry is None:
            self.refuse(404, "EntryNotFound", "Entry not found", headers)
        elif entry.sha256 is None:
            self.send(entry.path, headers | {"ETag": f'"{entry.git_sha1}"'}, fault)
        else:
            self.redirect(repository, commit, file, entry, headers)

    def redirect(self, repository: str, commit: str, file: str, entry: Entry, headers: dict[str, str]) -> None:
        oid = entry.sha256
        query = urllib.parse.urlencode({"repository": repository, "file": file, "Signature": "secretsignature"})
        headers |= {"ETag": f'"{oid}"', "X-Linked-Etag": f'"{oid}"', "X-Linked-Size": str(entry.size)}
        headers["Location"] = f"{self.hub.content_url}/content/{oid}?{query}"
        if self.hub.xet:
            token = f'<{self.hub.url}/api/models/{repository}/xet-read-token/{commit}>; rel="xet-auth"'
            headers |= {"X-Xet-Hash": str(oid), "Link": token}
        self.reply(302, b"Found", headers)

    def content(self, oid: str, *, query: dict[str, str]) -> None:
        if self.headers.get("Authorization"):
            self.refuse(400, message="Authorization must not reach the content service")
            return
        fault = self.hub.take("content", query.get("repository", ""), query.get("file", ""), self.command)
        if self.spoiled(fault):
            return
        self.send(self.hub.blobs[oid], {"ETag": f'"{oid}"', "Accept-Ranges": "bytes"}, fault)

    # ---- who may read what

    def files(self, repository: str, commit: str) -> dict[str, Entry] | None:
        """Return the files of a commit, or refuse as the Hub does and return None."""
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        kept = self.hub.repositories.get(repository)
        if token and token != GOOD_TOKEN:
            self.refuse(401, message="Invalid credentials in Authorization header")
        elif kept is None and token:
            self.refuse(404, "RepoNotFound", "Repository not found")
        elif kept is None or (kept.private and not token):
            self.refuse(401, "RepoNotFound", "Invalid username or password.")
        elif kept.gated != "open" and not token:
            self.refuse(401, "GatedRepo", f"Access to model {repository} is restricted. Please log in.")
        elif kept.gated == "denied":
            self.refuse(403, "GatedRepo", f"Access to model {repository} is restricted: not on the list.")
        elif commit not in kept.commits:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {commit}")
        else:
            return kept.commits[commit]
        return None

    # ---- answers

    def note(self, status: int) -> None:
        authorized = self.headers.get("Authorization") is not None
        self.hub.requests.append(Seen(self.command, self.path, status, self.headers.get("Range"), authorized))

    def begin(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.note(status)
        self.send_response(status)
        for name, value in {"Content-Length": str(length), **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.begin(status, len(body), {"Content-Type": "application/json", **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(
        self, status: int, code: str | None = None, message: str = "", headers: dict[str, str] | None = None
    ) -> None:
        own = {"X-Error-Code": code} if code else {}
        own |= {"X-Error-Message": message} if message else {}
        self.reply(status, json.dumps({"error": message}).encode(), {**(headers or {}), **own})

    def spoiled(self, fault: Fault | None) -> bool:
        """Apply a fault that replaces the whole answer; True when the request is over."""
        if fault is None:
            return False
        if fault.kind == "slow":
            time.sleep(fault.seconds)
        if fault.kind == "status":
            self.refuse(fault.status, fault.code, "scripted fault", fault.headers)
        if fault.kind == "reset":
            self.note(0)
            self.close_connection = True
            self.connection.close()
        return fault.kind in ("status", "reset")

    def send(self, path: Path, headers: dict[str, str], fault: Fault | None) -> None:
        """Send a file, or the range asked for, with the faults of its body."""
        kind = fault.kind if fault is not None else None
        data = path.read_bytes()
        first, status = 0, 200
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked and kind != "ignore-range":
            first, last, status = int(asked[1]), int(asked[2] or len(data) - 1), 206
            headers = headers | {"Content-Range": f"bytes {first}-{min(last, len(data) - 1)}/{len(data)}"}
            data = data[first : last + 1]
        if kind == "corrupt":
            data = bytes([data[0] ^ 1]) + data[1:]
        cut = data[: fault.at] if fault is not None and kind in ("drop", "short", "stall") else data
        self.begin(status, len(cut) if kind == "short" else len(data), headers)
        if self.command == "HEAD":
            return
        self.wfile.write(cut)
        self.wfile.flush()
        if fault is not None and kind == "stall":
            time.sleep(fault.seconds)
        self.close_connection = self.close_connection or kind in ("drop", "stall")


def _directories(files: dict[str, Entry]) -> Iterator[str]:
    yield from sorted({name.rsplit("/", 1)[0] for name in files if "/" in name})


def _hang(handler: _Handler, *_: str, query: dict[str, str]) -> None:
    handler.note(0)
    time.sleep(600)


_REPOSITORY = r"([^/]+/[^/]+)"
_ROUTES: tuple[tuple[str, Any], ...] = (
    (r"/", _Handler.root),
    (rf"/api/models/{_REPOSITORY}/tree/([^/]+)", _Handler.tree),
    (rf"/api/models/{_REPOSITORY}/xet-read-token/([^/]+)", _hang),
    (rf"/(?!api/|content/){_REPOSITORY}/resolve/([^/]+)/(.+)", _Handler.resolve),
    (r"/content/([0-9a-f]{64})", _Handler.content),
)
