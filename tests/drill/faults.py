"""The scripted faults of single cases: what is broken, how the case must end, within which time."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.records import CaseResult
from tests.checkpoints.loopback_hub import Hub
from tests.conformance_site import LLAMA, TEXT

PASS = "PASS completed compare"
WEIGHTS = "model.safetensors"

Check = Callable[[CaseResult, Path], str | None]
"""What is wrong with a result, given the drill's directory; None when nothing is."""


@dataclass(frozen=True)
class Fault:
    """One row of the models.yaml of the drill, and how its case has to end."""

    name: str
    what: str
    expected: str
    """Status, outcome and stage."""
    row: dict[str, Any] = field(default_factory=dict)
    drill: str | None = None
    """STAGE:ACTION; its glob is the row, or what comes before ``|``."""
    within: float = 60.0
    """Seconds from the case's start to its result, on a machine with nothing else to do."""
    check: Check | None = None
    folder: Callable[[Path], None] | None = None
    """Damages a copy of the checkpoint."""
    hub: Callable[[Hub, str], None] | None = None
    """Scripts the service of a repository of the row's name."""
    access: dict[str, Any] = field(default_factory=dict)


def every() -> tuple[Fault, ...]:
    """All faults of single cases."""
    return (*_deaths(), *_memory(), *_retried(), *_checks(), *_folders(), *_hub())


def _limits(**seconds: float) -> dict[str, Any]:
    return {"timeouts": {"load": 240, "place": 240, "compile": 240, "run": 240, "compare": 240, **seconds}}


def _mode(stage: str) -> dict[str, Any]:
    return {"axes": {"mode": ["compiled" if stage == "compile" else "eager"]}}


def _deaths() -> Iterator[Fault]:
    for stage, action, kind in (
        ("load", "exit=0", "crash"),
        ("place", "exit=7", "crash"),
        ("compile", "exit=1", "crash"),
        ("compare", "exit=3", "crash"),
        ("load", "segfault", "crash"),
        ("run", "segfault", "crash"),
        ("place", "abort", "crash"),
        ("compile", "abort", "crash"),
        ("run", "kill", "killed"),
    ):
        name = f"{action.partition('=')[0]}-{stage}"
        what = f"the process {action.replace('=', ' with status ')}s in stage {stage}, every time"
        yield Fault(name, what, f"FAIL {kind} {stage}", _mode(stage), f"{stage}:{action}", check=_two_attempts)
    for stage in ("load", "compile", "run"):
        row = _mode(stage) | _limits(**{stage: 3})
        yield Fault(f"hang-{stage}", f"hangs in stage {stage}", f"FAIL timeout {stage}", row, f"{stage}:hang", 40)
    yield Fault("stall", "waits for ever in a stage of four minutes", "FAIL timeout run", _limits(), "run:hang", 90)
    yield Fault("spin", "computes for ever", "FAIL timeout run", _limits(run=4), "run:spin", 40)
    yield Fault(
        "grandchild",
        "hangs, with a child in a session of its own that ignores SIGTERM and holds a lock",
        "FAIL timeout run",
        _limits(),  # it is told by its silence, once the grandchild is there
        "run:grandchild={drill}/grandchild.lock",
        90,
        _lock_is_free,
    )
    yield Fault("flood", "writes 200 MB of output and goes on", PASS, {}, f"run:flood={200 << 20}", 90, _log_is_bounded)
    yield Fault(
        "connect", "reaches for the network", "FAIL runtime_error run", {}, "run:connect=127.0.0.1/9", 60, _refused
    )
    yield Fault("raise-run", "raises while it runs", "FAIL runtime_error run", {}, "run:raise=made up")
    yield Fault(
        "raise-compile", "raises while it compiles", "FAIL compile_error compile", _mode("compile"), "compile:raise"
    )


def _memory() -> Iterator[Fault]:
    yield Fault(
        "grow", "takes 2 GiB of 1.4", "FAIL host_out_of_memory load", {}, f"load:allocate={2 << 30}", 60, _peak_is_known
    )
    yield Fault("host-memory", "MemoryError", "FAIL host_out_of_memory run", {}, "run:host_memory")
    yield Fault("device-memory", "OutOfMemoryError", "FAIL device_out_of_memory place", {}, "place:device_memory")
    yield Fault("disk", "a full disk under its outputs", "NOTRUN unavailable compare", {}, "compare:disk")


def _retried() -> Iterator[Fault]:
    own = {"inputs": {"texts": [f"{TEXT} compliance"], "decode_steps": 1}}
    other = {"inputs": {"texts": [f"{TEXT} writing"], "decode_steps": 1}}
    for action in ("segfault", "kill", "device_error"):
        name = f"{action.replace('_', '-')}-once"
        yield Fault(name, f"{action} at the first attempt only", PASS, {}, f"run:{action}@1", 60, _flaky)
    yield Fault("hang-once", "hangs at the first attempt only", PASS, _limits(), "run:hang@1", 60, _flaky)
    yield Fault("reference-once", "its reference crashes once", PASS, own, "reference/|run:segfault@1", 60, _flaky)
    yield Fault(
        "reference-dies", "its reference crashes always", "ERROR invalid_reference run", other, "reference/|run:abort"
    )


def _checks() -> Iterator[Fault]:
    spyre = {"axes": {"target": ["spyre"]}}
    scale = "place:scale=model.layers.1.mlp.down_proj.weight*1.05"
    yield Fault("scaled", "one parameter 5 % off on the device alone", "FAIL completed compare", spyre, scale, 90)
    yield Fault("on-cpu", "the device is never used", "ERROR completed compare", spyre, "place:cpu", 90)


def _folders() -> Iterator[Fault]:
    bad = "ERROR invalid_checkpoint resolve"

    def fault(name: str, what: str, damage: Callable[[Path], None], expected: str = bad) -> Fault:
        return Fault(name, what, expected, folder=damage)

    yield fault("no-folder", "the checkpoint is gone", shutil.rmtree)
    yield fault("no-config", "config.json is missing", lambda f: (f / "config.json").unlink())
    yield fault("bad-config", "config.json is no JSON", lambda f: _write(f / "config.json", b"{oops"))
    yield fault("cut", "half of the weights", lambda f: _write(f / WEIGHTS, (f / WEIGHTS).read_bytes()[:1_000_000]))
    yield fault("empty", "weights of no bytes", lambda f: _write(f / WEIGHTS, b""))
    yield fault(
        "pointer", "a Git LFS pointer", lambda f: _write(f / WEIGHTS, b"version https://git-lfs.github.com/s\n")
    )
    yield fault("absurd", "a header of 2^62 bytes", lambda f: _write(f / WEIGHTS, struct.pack("<Q", 1 << 62) + b"{}"))
    yield fault(
        "pickle", "only a pickle, not allowed", lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin") and None
    )
    yield fault("renamed", "a layer's weights are missing", _rename_a_tensor, "ERROR invalid_checkpoint load")


def _hub() -> Iterator[Fault]:
    """Rows on the loopback Hub; `row` is completed with repository and commit."""
    away, gated, bad = (
        f"{words} resolve" for words in ("NOTRUN unavailable", "NOTRUN gated", "ERROR invalid_checkpoint")
    )
    short = _limits(resolve=6)
    always: dict[str, Any] = {"times": -1}

    def spoil(place: Any, kind: Any, **details: Any) -> Callable[[Hub, str], None]:
        return lambda hub, repository: hub.spoil(place, kind, repository=repository, **details)

    yield Fault("hub-well", "nothing is wrong with the Hub", PASS, hub=lambda hub, repository: None, within=90)
    yield Fault("hub-busy", "429 and then an answer", PASS, hub=spoil("tree", "status", status=429), within=120)
    yield Fault(
        "hub-corrupt", "a corrupt body of the right size, once", PASS, hub=spoil("content", "corrupt"), within=120
    )
    yield Fault("hub-short", "a body that breaks off, once", PASS, hub=spoil("content", "drop", at=5000), within=120)
    yield Fault(
        "hub-corrupt-always", "corrupt whenever fetched", bad, hub=spoil("content", "corrupt", **always), within=120
    )
    yield Fault("hub-503", "503 for ever", away, short, hub=spoil("tree", "status", **always), within=60)
    yield Fault("hub-reset", "connections are reset", away, short, hub=spoil("tree", "reset", **always), within=60)
    stalls = spoil("content", "stall", at=100, seconds=600, **always)
    yield Fault("hub-stall", "a body that never ends", away, short, hub=stalls, within=60)
    yield Fault("hub-gated", "gated, and no token", gated, hub=lambda *_: None, access={"gated": "terms"}, within=90)
    yield Fault(
        "hub-private",
        "private or missing, and no token",
        gated,
        hub=lambda *_: None,
        access={"private": True},
        within=90,
    )


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _rename_a_tensor(folder: Path) -> None:
    """A tensor under another name of the same length: the file is sound, the model is incomplete."""
    data = (folder / WEIGHTS).read_bytes()
    _write(folder / WEIGHTS, data.replace(b"layers.1.mlp.down_proj.weight", b"layers.1.mlp.gown_proj.weight"))


def copy_of_llama(folder: Path) -> Path:
    """A copy of the tiny Llama, to damage."""
    shutil.copytree(LLAMA, folder)
    return folder


# ---- what has to hold besides the outcome


def _two_attempts(result: CaseResult, _: Path) -> str | None:
    return None if len(result.attempts) == 2 else f"{len(result.attempts)} attempts instead of 2"


def _flaky(result: CaseResult, drill: Path) -> str | None:
    return None if "flaky" in result.verdict.flags else "not flagged flaky"


def _lock_is_free(_: CaseResult, drill: Path) -> str | None:
    import fcntl

    with (drill / "grandchild.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "the grandchild lives and holds its lock"
    return None


def _log_is_bounded(result: CaseResult, drill: Path) -> str | None:
    size = (drill / "faults" / str(result.log)).stat().st_size
    return None if size < 2 << 20 else f"a log of {size:,} bytes is kept"


def _refused(result: CaseResult, _: Path) -> str | None:
    refused = "network access after the resolve stage is refused" in result.outcome.message
    return None if refused else f"not refused as network: {result.outcome.message}"


def _peak_is_known(result: CaseResult, _: Path) -> str | None:
    return None if "GiB of host memory, limit" in result.outcome.message else result.outcome.message
