# ruff: noqa: T201 - the report is what it prints
"""What isolation costs: starting a case's process, and a whole matrix against the same work done bare.

    python benchmarks/isolation.py start
    python benchmarks/isolation.py matrix [--manifest models.yaml] [--profile smoke] [--cache DIR]

``start``: a child of the fork server until its first word, and a fresh interpreter with the same imports until
its first word, in turn. Target: 50 times cheaper.
``matrix``: ``conformance run`` with one worker and a warm cache of references, and one process that does the
same loads, placements, compilations and forwards one after the other, at the same thread count: those of a case, of
its ops alone, and of its model taken apart. Each pair is run in turn, the order changing; both times are of whole
processes. Target: within 1.10.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.isolate import Isolator, Limits
from harness.isolate.child import Marker
from harness.records import Case, Checkpoint, Record, Stage

REPOSITORY = Path(__file__).parent.parent
WORD = "import harness.isolate.preload; print('ready', flush=True)"


class Word(Record):
    """The first word of a child."""


def speak(mark: Marker, request: str) -> Word:
    """Runs in a child: marks a stage at once."""
    mark(Stage.LOAD)
    return Word()


def start(rounds: int) -> None:
    """Both ways to start, in turn."""
    isolator = Isolator()
    forked, fresh = [], []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        first_word(isolator, log)  # starts the server, which is paid once a run
        for _ in range(rounds):
            forked.append(first_word(isolator, log))
            began = time.monotonic()
            with subprocess.Popen([sys.executable, "-c", WORD], stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
                assert process.stdout is not None
                process.stdout.readline()
                fresh.append(time.monotonic() - began)
    isolator.close()
    ratio = statistics.median(b / a for a, b in zip(forked, fresh, strict=True))
    print(
        f"fork server child {statistics.median(forked) * 1000:.0f} ms, fresh interpreter "
        f"{statistics.median(fresh):.2f} s, median of {rounds} pairs: {ratio:.0f}x (at least 50)"
    )


def first_word(isolator: Isolator, log: Path) -> float:
    """Seconds from the request to the child's first stage mark."""
    heard: list[float] = []
    began = time.monotonic()
    ended = isolator.run(
        "benchmarks.isolation:speak", "", limits=Limits({}), log=log, on_stage=lambda _: heard.append(time.monotonic())
    )
    assert ended.value is not None, ended.outcome
    return heard[0] - began


def matrix(manifest: Path, profile: str | None, cache: Path, rounds: int) -> None:
    """The harness and the bare process, in turn, after one run that fills the cache of references."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--manifest", str(manifest), "--cache", str(cache), *(["--profile", profile] if profile else [])]
        first = seconds_of([*harness(options), "--run-dir", f"{folder}/first"])
        print(f"first run: {first:.1f} s", flush=True)
        own, bare = [], []
        for number in range(rounds):
            pair = [
                (own, [*harness(options), "--run-dir", f"{folder}/{number}"]),
                (bare, [sys.executable, __file__, "bare", *options]),
            ]
            for times, command in pair if number % 2 else reversed(pair):
                times.append(seconds_of(command))
            print(f"harness {own[-1]:.1f} s, bare {bare[-1]:.1f} s, ratio {own[-1] / bare[-1]:.3f}", flush=True)
    ratio = statistics.median(a / b for a, b in zip(own, bare, strict=True))
    print(f"median of {rounds} pairs: {ratio:.3f} (at most 1.10); second run against first: {own[0] / first:.2f}")


def harness(options: list[str]) -> list[str]:
    """The command with one worker; threads are the cores, as in the bare process."""
    return [sys.executable, "-m", "harness", "run", "--workers", "1", "--offline", "-q", *options]


def seconds_of(command: list[str]) -> float:
    """Wall clock of a command that has to succeed."""
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return time.monotonic() - began


def bare(manifest: Path, profile: str | None, cache: Path) -> None:
    """Every case's load, placement, compilation and forwards, those of its evidence included, and nothing else."""
    import torch

    from harness import environment
    from harness import manifest as manifests
    from harness import matrix as matrices
    from harness.checkpoints import resolve

    torch.set_num_threads(environment.cores())
    read = manifests.load(manifest)
    for case in matrices.plan(read, profile=profile):
        checkpoint = resolve(case.source, cache=cache / "checkpoints", base=manifest.parent, offline=True)
        for _ in forwards(case, checkpoint):
            pass
        torch._dynamo.reset()


def forwards(case: Case, checkpoint: Checkpoint) -> Iterator[None]:
    """One case as its process does it, without marks, records and comparison."""
    import torch

    from harness import apart, subject, targets
    from harness.records import Mode

    question = subject.question_of(case, checkpoint)
    model = subject.load(checkpoint, question.workload, case.dtype).model
    target = targets.get(case.target)
    device = target.device()
    model = model.to(device)
    call: Callable[..., Any] = model
    forced: dict[str, torch.Tensor] = {}
    if case.mode is Mode.COMPILED:
        call = target.compile(model)
        outputs = subject.run(question, model, call, forced)
        forced = {name: tensor for name, tensor in outputs.items() if name.startswith(subject.FORCED)}
        yield
    with torch.no_grad(), target.recording() as usage:
        subject.run(question, model, call, forced)
    yield

    def short_forward(model: torch.nn.Module) -> object:
        return subject.run(question.shorter(), model, model, forced)

    control = case.dtype.value
    if case.mode is Mode.EAGER:
        apart.check_ops(usage.facts(), model, short_forward, control_format=control, seconds=apart.LEAST_SECONDS / 2)
    apart.take_apart(
        checkpoint,
        model,
        short_forward,
        formats=(subject.number_format(case, device), control),
        auto_class=question.workload.auto_class,
        seconds=apart.LEAST_SECONDS,
        memory=None,
    )
    yield


def main() -> None:
    """Read the command line and measure."""
    from harness.options import default_cache  # imports pytest: a child that imports this file must not pay for it

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["start", "matrix", "bare"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--manifest", type=Path, default=REPOSITORY / "models.yaml")
    parser.add_argument("--profile")
    parser.add_argument("--cache", type=Path, default=default_cache())
    options = parser.parse_args()
    sys.path.insert(0, str(REPOSITORY))
    if options.what == "start":
        start(options.rounds)
    elif options.what == "matrix":
        matrix(options.manifest.absolute(), options.profile, options.cache.absolute(), options.rounds)
    else:
        bare(options.manifest.absolute(), options.profile, options.cache.absolute())


if __name__ == "__main__":
    main()
