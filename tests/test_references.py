"""Stored references: content keys, verified on read, capped in size, never believed when altered."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

import harness
from harness.errors import CheckpointError
from harness.records import (
    Case,
    Check,
    Checkpoint,
    Dtype,
    Inputs,
    Mode,
    Observation,
    OutcomeKind,
    Role,
    Task,
    WheelSource,
)
from harness.references import ENTRY, MAKERS, SUMS, TENSORS, ReferenceStore, code_digest, key, provenance

STACK = {"torch": "2.13.0", "transformers": "5.24.0", "threads": "1", "cpu": "x86_64+avx2"}
DAY = 86_400


def facts(stack: dict[str, str] | None = None, dtype: Dtype = Dtype.FLOAT32, **changes: object) -> dict[str, str]:
    case = Case(
        id="tiny/causal-lm/spyre-eager-float16",
        model="tiny",
        task=Task.CAUSAL_LM,
        target="spyre",
        mode=Mode.EAGER,
        dtype=Dtype.FLOAT16,
        source=WheelSource(wheel="tiny==1.0", path="tiny", sha256="0" * 64),
        inputs=Inputs(ids=((1, 2),)),
    ).model_copy(update=changes)
    checkpoint = Checkpoint(folder="/somewhere", origin="wheel:tiny==1.0/tiny", format="safetensors", digest="ab" * 32)
    return provenance(case, checkpoint, Role.REFERENCE, dtype, stack or STACK)


def observation(**changes: object) -> Observation:
    fields = {
        "role": Role.REFERENCE,
        "target": "cpu",
        "dtype": Dtype.FLOAT32,
        "mode": Mode.EAGER,
        "threads": 1,
        "weights_digest": "cd" * 32,
    }
    return Observation(**(fields | changes))


def publish(store: ReferenceStore, what: dict[str, str], value: int = 1, size: int = 1) -> Path:
    import numpy

    with store.draft() as draft:
        save_file({"logits": numpy.full(size, value, numpy.int64)}, draft / TENSORS)
        return store.publish(draft, what, observation())


def test_an_entry_comes_back_as_it_was_published(tmp_path: Path) -> None:
    store = ReferenceStore(tmp_path)
    assert store.read(facts()) is None
    folder = publish(store, facts())
    entry = store.read(facts())
    assert entry is not None
    assert (entry.provenance, entry.observation) == (facts(), observation())
    assert load_file(store.folder(key(facts())) / TENSORS)["logits"].tolist() == [1]
    assert folder == store.folder(key(facts()))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [], "no draft stays"


@pytest.mark.parametrize(
    "other",
    [
        facts(stack=STACK | {"torch": "2.14.0"}),
        facts(stack=STACK | {"threads": "2"}),
        facts(stack=STACK | {"cpu": "x86_64+avx512f"}),
        facts(dtype=Dtype.BFLOAT16),
        facts(inputs=Inputs(ids=((1, 3),))),
        facts(task=Task.MASKED_LM),
        facts(check=Check.LEFT_PADDING),
    ],
    ids=["torch", "threads", "cpu", "dtype", "inputs", "task", "check"],
)
def test_everything_a_reference_depends_on_is_in_its_key(tmp_path: Path, other: dict[str, str]) -> None:
    store = ReferenceStore(tmp_path)
    publish(store, facts())
    assert key(other) != key(facts())
    assert store.read(other) is None


def test_the_code_that_makes_references_is_in_the_key() -> None:
    assert facts()["code"] == code_digest()
    assert all(list((Path(harness.__file__).parent).glob(pattern)) for pattern in MAKERS), "each pattern finds files"


def test_the_target_is_not_in_the_key() -> None:
    assert facts(target="cpu", mode=Mode.COMPILED, model="renamed") == facts()


def test_a_check_that_asks_the_same_has_the_same_reference() -> None:
    assert facts(check=Check.SAMPLING) == facts()


def refused(store: ReferenceStore, what: dict[str, str]) -> str:
    with pytest.raises(CheckpointError) as caught:
        store.read(what)
    assert caught.value.kind == OutcomeKind.INVALID_REFERENCE
    assert str(caught.value).endswith("Make it anew with --refresh-reference.")
    return str(caught.value)


def test_altered_tensors_are_an_invalid_reference(tmp_path: Path) -> None:
    store = ReferenceStore(tmp_path)
    path = publish(store, facts()) / TENSORS
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    assert "was altered after it was made: its hash differs" in refused(store, facts())
    store.forget(facts(), before=time.time() + 1)
    assert store.read(facts()) is None


@pytest.mark.parametrize("name", [TENSORS, ENTRY, SUMS])
def test_a_byte_anywhere_in_an_entry_makes_it_invalid(tmp_path: Path, name: str) -> None:
    """What was observed is believed as much as the numbers: no byte of it may change unseen."""
    store = ReferenceStore(tmp_path)
    path = publish(store, facts()) / name
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        refused(store, facts())


def test_a_clock_that_was_set_back_keeps_no_entry_for_ever(tmp_path: Path) -> None:
    store = ReferenceStore(tmp_path, limit=1)
    future = time.time() + 30 * DAY
    for what in (facts(), facts(dtype=Dtype.FLOAT16)):
        folder = publish(store, what)
        for path in (*folder.iterdir(), folder):
            os.utime(path, (future, future))
    store.forget(facts(), before=time.time())
    assert store.read(facts()) is None, "--refresh-reference makes it anew"
    publish(store, facts())
    assert not store.folder(key(facts(dtype=Dtype.FLOAT16))).exists(), "it is not of today"


def test_the_wait_for_an_entry_is_bounded_and_names_who_holds_it(tmp_path: Path) -> None:
    """Another run that was stopped, say, keeps its lock: this one must not wait for ever."""
    store = ReferenceStore(tmp_path)
    with store.alone(facts(), 60), pytest.raises(CheckpointError) as caught, store.alone(facts(), 0.1):
        pass
    assert caught.value.kind == OutcomeKind.UNAVAILABLE
    assert f"held by process {os.getpid()}" in str(caught.value)


def test_what_was_made_since_is_not_forgotten(tmp_path: Path) -> None:
    store = ReferenceStore(tmp_path)
    publish(store, facts())
    store.forget(facts(), before=time.time() - 60)
    assert store.read(facts()) is not None
    store.forget(facts(dtype=Dtype.FLOAT16), before=time.time() + 60)  # of which there is none


def test_one_at_a_time_makes_an_entry(tmp_path: Path) -> None:
    store, order = ReferenceStore(tmp_path), []

    def second() -> None:
        with ReferenceStore(tmp_path).alone(facts(), 60):
            order.append("second")

    with store.alone(facts(), 60), store.alone(facts(dtype=Dtype.FLOAT16), 60):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.2)  # a lock that does not hold would show here
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_an_entry_of_other_provenance_is_stale(tmp_path: Path) -> None:
    store = ReferenceStore(tmp_path)
    there = publish(store, facts())
    here = store.folder(key(facts(stack=STACK | {"torch": "2.14.0"})))
    here.parent.mkdir(parents=True, exist_ok=True)
    there.rename(here)
    told = refused(store, facts(stack=STACK | {"torch": "2.14.0"}))
    assert "was made for another checkpoint, input or library version" in told


@pytest.mark.parametrize(
    ("name", "content"), [(TENSORS, None), (ENTRY, None), (ENTRY, b""), (ENTRY, b'{"provenance": {}}'), (TENSORS, b"")]
)
def test_half_an_entry_is_invalid(tmp_path: Path, name: str, content: bytes | None) -> None:
    store = ReferenceStore(tmp_path)
    path = publish(store, facts()) / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    refused(store, facts())


def test_the_first_of_two_equal_entries_holds(tmp_path: Path) -> None:
    store = ReferenceStore(tmp_path)
    publish(store, facts(), value=1)
    folder = publish(store, facts(), value=2)
    assert load_file(folder / TENSORS)["logits"].tolist() == [1]
    assert store.read(facts()) is not None


def test_longest_unused_entries_go_first_and_todays_stay(tmp_path: Path) -> None:
    every = [facts(inputs=Inputs(ids=((1, n),))) for n in range(4)]
    store = ReferenceStore(tmp_path, limit=1 << 40)
    for age, what in zip((5, 4, 3), every, strict=False):
        folder = publish(store, what, size=1000)
        os.utime(folder, (time.time() - age * DAY,) * 2)
    store.read(every[0])  # used just now
    size = sum(path.stat().st_size for path in store.folder(key(every[0])).iterdir())
    small = ReferenceStore(tmp_path, limit=3 * size + 100)
    publish(small, every[3], size=1000)
    assert [small.folder(key(what)).exists() for what in every] == [True, False, True, True]
    tiny = ReferenceStore(tmp_path, limit=1)
    publish(tiny, facts(inputs=Inputs(ids=((9, 9),))))
    assert [tiny.folder(key(what)).exists() for what in every] == [True, False, False, True]


def test_drafts_of_killed_runs_go_after_a_day(tmp_path: Path) -> None:
    store = ReferenceStore(tmp_path)
    for name, age in ((".draft-1-old", 2), (".draft-1-new", 0)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / TENSORS).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age * DAY,) * 2)
    publish(store, facts())
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [".draft-1-new"]
