"""The options of a run: declared once, for ``conformance run`` and for pytest."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest

from harness import environment
from harness.errors import UsageError
from harness.isolate import SECRET_NAME, STALL_SECONDS
from harness.records import NO_RESULT, Drill, ExpectationMode, Stage
from harness.report import refuse_foreign
from harness.settings import Settings
from harness.store import RUN_FILE, new_run_id

SHORTEST_SECRET = 8
"""Characters; what is shorter would be found in innocent texts."""


_ARGUMENTS = {
    "exit": r"[0-9]{0,3}",
    "allocate": r"[0-9]+",
    "flood": r"[0-9]+",
    "connect": r".+/[0-9]+",
    "grandchild": r".+",
    "scale": r".+\*-?[0-9]+(\.[0-9]*)?(e[-+]?[0-9]+)?",
}
"""Arguments of drills; a wrong one would show as a failure of the device, and the drill as a success."""


def add_options(group: Any) -> None:
    """Declare the options on a pytest option group or an argparse parser."""
    add = getattr(group, "addoption", None) or group.add_argument
    for name, what in (
        ("model", "a model of the manifest"),
        ("task", "a task, e.g. causal-lm"),
        ("target", "a target, e.g. spyre"),
        ("mode", "eager or compiled"),
        ("dtype", "float16, bfloat16 or float32"),
        ("check", "a check, e.g. outputs or sampling"),
    ):
        add(f"--{name}", action="append", default=[], metavar="NAME", help=f"only cases of {what}; repeatable")
    add("--manifest", default="models.yaml", metavar="FILE", help="the matrix (default: models.yaml)")
    add(
        "--profile",
        default=None,
        metavar="NAME",
        help="smoke, nightly, weekly or your own; default: all rows",
    )
    add(
        "--expectations",
        default=ExpectationMode.GATING.value,
        choices=[mode.value for mode in ExpectationMode],
        help="validate: set them aside, so that each row shows what it does, and FAIL does not make the run red",
    )
    add("--shard", default=None, metavar="I/N", help="only the I-th of N parts of the plan")
    add("--run-dir", default=None, metavar="DIR", help="where the run is written (default: reports/runs/<id>)")
    add("--resume", action="store_true", help="go on with the run in --run-dir")
    add(
        "--executor",
        default="local",
        choices=("local", "ray"),
        help="local: processes of this machine (default); ray: the nodes of a Ray cluster",
    )
    add("--workers", type=int, default=None, metavar="N", help="cases at a time (default: one per core)")
    add("--retries", type=int, default=1, metavar="N", help="tries again after a crash, kill, timeout (default: 1)")
    add("--stall", type=float, default=STALL_SECONDS, metavar="SECONDS", help="no output and no work for so long: end")
    add("--memory", type=float, default=None, metavar="GIB", help="host memory the run may use (default: all)")
    add("--localize", type=float, default=300.0, metavar="SECONDS", help="to find where a failure begins; 0: do not")
    add("--balance-by", default=None, metavar="FILE", help="balance --shard by these seconds by case id (JSON)")
    add("--cache", default=None, metavar="DIR", help="checkpoints and references (default: CONFORMANCE_CACHE)")
    add("--cache-limit", type=float, default=None, metavar="GIB", help="checkpoints kept at most (default: the disk)")
    add("--report", default=None, metavar="DIR", help="render the run's report there when it has ended")
    add("--offline", action="store_true", help="fetch nothing: use what the cache holds")
    add("--refresh-reference", action="store_true", help="make references and controls anew")
    add(
        "--allow-notrun",
        action="append",
        default=[],
        metavar="KIND",
        choices=sorted(kind.value for kind in NO_RESULT),
        help="an outcome that may stay without result, e.g. unavailable; repeatable",
    )
    add(
        "--drill",
        action="append",
        default=[],
        metavar="GLOB:STAGE:ACTION",
        help="inject a fault on purpose, e.g. '*compiled*:run:segfault'; the results say so",
    )


def settings_from(config: pytest.Config) -> Settings:
    """Options and environment as settings. Raises UsageError for what cannot be meant."""
    option = config.option
    workers = default_workers() if option.workers is None else option.workers
    if workers < 1:
        raise UsageError(f"--workers {workers}: at least one worker is needed")
    if option.retries < 0 or not option.stall > 0:
        raise UsageError("--retries takes 0 or more, --stall more than 0 seconds")
    for name, size in (("memory", option.memory), ("cache-limit", option.cache_limit)):
        if size is not None and not 0 < size < math.inf:
            raise UsageError(f"--{name} {size}: give a number of GiB above 0")
    _refuse_places(option)
    cores = environment.cores()
    directory = Path(option.run_dir) if option.run_dir else _new_run_directory()
    return Settings(
        manifest_path=Path(option.manifest).absolute(),
        cache=Path(option.cache).absolute() if option.cache else default_cache(),
        run_directory=directory.absolute(),
        profile=option.profile,
        workers=workers,
        threads=max(1, cores // workers),
        offline=option.offline or os.environ.get("HF_HUB_OFFLINE", "") in ("1", "ON", "YES", "TRUE"),
        refresh_before=time.time() if option.refresh_reference else None,
        cache_limit=int(option.cache_limit * 2**30) if option.cache_limit else None,
        drills=tuple(parse_drill(text) for text in option.drill),
        memory_limit=int(option.memory * 2**30) if option.memory else None,
        retries=option.retries,
        stall=option.stall,
        localize_seconds=option.localize,
        selection=_as_typed(option),
        expectations=ExpectationMode(option.expectations),
        secrets=secrets(),
    )


def _refuse_places(option: Any) -> None:
    """Raise UsageError for files and folders that would be found wrong only after hours of work, or never."""
    if option.resume and not option.run_dir:
        raise UsageError("--resume goes on with the run in --run-dir; name it")
    if option.resume and not (Path(option.run_dir) / RUN_FILE).exists():
        raise UsageError(f"--run-dir {option.run_dir}: holds no run to --resume; leave that out to begin one there")
    for name, value in (
        ("run-dir", option.run_dir),
        ("cache", option.cache or default_cache()),
        ("report", option.report),
    ):
        if value and Path(value).exists() and not Path(value).is_dir():
            raise UsageError(f"--{name} {value}: is a file; name a folder")
    if option.run_dir and Path(option.run_dir).is_dir():
        there = {path.name for path in Path(option.run_dir).iterdir()}
        if there - {"logs"} and RUN_FILE not in there:
            raise UsageError(f"--run-dir {option.run_dir}: is not empty and holds no run; name another folder")
    if option.report:
        refuse_foreign(Path(option.report))
    if option.balance_by:
        _refuse_durations(Path(option.balance_by))


def _refuse_durations(path: Path) -> None:
    """Raise UsageError for a file with which this shard would take other cases than its neighbours leave it."""
    if not path.is_file():
        raise UsageError(f"--balance-by {path}: no such file; without it shards split in another way")
    try:
        seconds = json.loads(path.read_bytes())
    except ValueError:
        seconds = None
    if not isinstance(seconds, dict):
        raise UsageError(
            f"--balance-by {path}: holds no seconds by case id; give the file that `conformance ci plan` wrote"
        )


def secrets() -> tuple[str, ...]:
    """Values of this environment that must not be written anywhere, longest first."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    found = {value for name, value in os.environ.items() if SECRET_NAME.search(name)}
    for path in (Path(os.environ.get("HF_TOKEN_PATH", home / "token")),):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found.add(path.read_text())
    return tuple(sorted((s.strip() for s in found if len(s.strip()) >= SHORTEST_SECRET), key=len, reverse=True))


def default_workers() -> int:
    """One case per core: several processes of one thread beat one process of several threads here.

    Fewer where memory is short; cases that are known to be large wait for one another besides.
    """
    memory = psutil.virtual_memory().total
    return max(1, min(environment.cores(), memory // (3 << 30)))


def default_cache() -> Path:
    """``CONFORMANCE_CACHE``, or the user's cache directory."""
    named = os.environ.get("CONFORMANCE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(named) if named else (Path(base) if base else Path.home() / ".cache") / "spyre-conformance"


def parse_drill(text: str) -> Drill:
    """Read ``GLOB:STAGE:ACTION[=ARGUMENT][@ATTEMPTS]``."""
    text, _, count = text.rpartition("@") if re.search(r"@[0-9]+$", text) else (text, "", "")
    attempts = int(count) if count else None
    parts = text.rsplit(":", 2)
    stages = ", ".join(Stage)
    if len(parts) != 3 or parts[1] not in set(Stage):
        raise UsageError(f"--drill {text!r}: expected GLOB:STAGE:ACTION with a stage of {stages}")
    action, _, argument = parts[2].partition("=")
    form = _ARGUMENTS.get(action)
    if form is not None and not re.fullmatch(form, argument):
        raise UsageError(f"--drill {text!r}: {action} takes an argument of the form {form}, not {argument!r}")
    try:
        return Drill(case=parts[0], stage=Stage(parts[1]), action=action, argument=argument, attempts=attempts)
    except ValueError as error:
        actions = ", ".join(get_args(Drill.model_fields["action"].annotation))
        raise UsageError(f"--drill {text!r}: unknown action {action!r}; one of {actions}") from error


def _new_run_directory() -> Path:
    return Path("reports") / "runs" / new_run_id(datetime.now(UTC))


def _as_typed(option: Any) -> str:
    """The selection options in the form they were given."""
    words = []
    for name in ("model", "task", "target", "mode", "dtype", "check"):
        words += [f"--{name} {value}" for value in getattr(option, name)]
    if option.shard:
        words.append(f"--shard {option.shard}")
    if option.keyword:
        words.append(f"-k {option.keyword!r}")
    return " ".join(words)
