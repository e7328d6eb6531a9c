"""Sources inside wheels: the real pip, from a directory of wheels in place of an index."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zipfile
from pathlib import Path

import pytest

from harness.checkpoints import describe, release
from harness.checkpoints.cache import Cache
from harness.checkpoints.wheel import extract
from harness.errors import CheckpointError
from harness.records import WheelSource
from tests.checkpoints.site import Site, write_checkpoint

PATH = "packed/model"


def build_wheel(site: Site, **extra: str) -> Path:
    """Return a wheel with a checkpoint at PATH and files outside it."""
    source = write_checkpoint(site.root / "source")
    (source / "training_args.bin").write_bytes(b"pickle")
    wheelhouse = site.root / "wheelhouse"
    wheelhouse.mkdir(exist_ok=True)
    wheel = wheelhouse / "packed-1.0-py3-none-any.whl"
    info = "packed-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted(source.iterdir()):
            archive.write(path, f"{PATH}/{path.name}")
        archive.writestr("packed/__init__.py", "raise SystemExit('never imported')")
        archive.writestr(f"{PATH}s_of_another/config.json", "{}")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: packed\nVersion: 1.0\nRequires-Python: <3\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
        for name, content in extra.items():
            archive.writestr(name, content)
    site.environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheelhouse), "PIP_CONFIG_FILE": os.devnull}
    return wheel


def source_of(file: Path, **fields: str) -> WheelSource:
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    return WheelSource(**{"wheel": "packed==1.0", "path": PATH, "sha256": sha256, **fields})


@pytest.fixture
def here(tmp_path: Path):
    yield Site(tmp_path)
    release()


def test_the_wanted_path_and_nothing_else_is_brought(here: Site) -> None:
    source = source_of(build_wheel(here))
    assert describe(source, cache=here.cache, base=here.root) is None
    checkpoint = here.resolve(source)
    names = ["config.json", "model.safetensors", "tokenizer.json"]
    assert sorted(path.name for path in Path(checkpoint.folder).rglob("*")) == names
    assert [fact.name for fact in checkpoint.files] == names
    assert checkpoint.origin == "wheel:packed==1.0/packed/model"
    assert checkpoint.revision == source.sha256
    assert checkpoint.parameters == 600
    known = describe(source, cache=here.cache, base=here.root)
    assert known is not None
    assert known.parameters == 600
    assert list((here.cache / "building").iterdir()) == []


def test_no_index_is_asked_for_what_is_cached(here: Site) -> None:
    wheel = build_wheel(here)
    source = source_of(wheel)
    first = here.resolve(source)
    wheel.unlink()
    here.environ["PATH"] = ""
    assert here.resolve(source, offline=True) == first
    weights = Path(first.folder) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])  # mended from the cached wheel
    assert here.resolve(source) == first
    Cache(here.cache).entry(Path(first.folder).name).rename(here.root / "elsewhere")
    assert here.resolve(source, offline=True) == first


def test_another_file_than_the_pinned_one_is_refused(here: Site) -> None:
    source = source_of(build_wheel(here), sha256="0" * 64)
    kind, text = here.outcome(source)
    assert (kind, "another file than the pinned sha256" in text) == ("invalid_checkpoint", True), text


def test_an_index_that_does_not_have_it(here: Site) -> None:
    source = source_of(build_wheel(here), wheel="packed==2.0")
    del here.environ["PIP_NO_INDEX"]
    here.environ["PIP_INDEX_URL"] = "http://user:secretpassword@127.0.0.1:9/simple"
    kind, text = here.outcome(source)
    assert (kind, "No matching distribution found for packed==2.0" in text) == ("unavailable", True), text
    assert "secretpassword" not in text
    assert here.outcome(source, offline=True) == (
        "unavailable",
        "wheel:packed==2.0/packed/model: not in the cache, and offline mode forbids to ask the package index",
    )


def test_a_path_that_is_not_there(here: Site) -> None:
    wheel = build_wheel(here)
    for path in ("packed/nothing", "packed/mode"):
        with pytest.raises(CheckpointError, match="holds nothing at"):
            extract(wheel, source_of(wheel, path=path), here.root / "out", Cache(here.cache))


@pytest.mark.parametrize("name", ["../evil.json", "/tmp/evil.json", f"{PATH}/../../evil.json", f"{PATH}/a\\..\\evil"])
def test_members_that_leave_the_folder(here: Site, name: str) -> None:
    wheel = build_wheel(here, **{name: "{}"})
    with pytest.raises(CheckpointError, match="leaves the checkpoint's folder"):
        extract(wheel, source_of(wheel), here.root / "out", Cache(here.cache))
    assert not list(here.root.rglob("evil*"))


def test_links_are_refused(here: Site) -> None:
    wheel = build_wheel(here)
    with zipfile.ZipFile(wheel, "a") as archive:
        link = zipfile.ZipInfo(f"{PATH}/link.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(CheckpointError, match="is a link, a device or encrypted; refused"):
        extract(wheel, source_of(wheel), here.root / "out", Cache(here.cache))


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_a_name_that_occurs_twice_is_refused(here: Site) -> None:
    wheel = build_wheel(here, **{f"{PATH}/config.json": "{}"})
    with pytest.raises(CheckpointError, match="twice; refused"):
        extract(wheel, source_of(wheel), here.root / "out", Cache(here.cache))


def test_an_archive_that_does_not_fit_is_refused_before_it_is_unpacked(here: Site) -> None:
    # a bomb: megabytes that the archive declares, from a few hundred bytes
    wheel = build_wheel(here)
    with zipfile.ZipFile(wheel, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{PATH}/bomb.json", b" " * 4_000_000)
    with pytest.raises(CheckpointError, match="no room for 4 MB"):
        extract(wheel, source_of(wheel), here.root / "out", Cache(here.cache, 1_000_000))
    assert not (here.root / "out").exists()


def test_a_damaged_member_is_found_by_its_checksum(here: Site) -> None:
    wheel = build_wheel(here)
    data = bytearray(wheel.read_bytes())
    at = data.index(b'"LlamaForCausalLM"')
    data[at + 1] ^= 1
    wheel.write_bytes(data)
    with pytest.raises(CheckpointError, match="no archive that can be read"):
        extract(wheel, source_of(wheel), here.root / "out", Cache(here.cache))


def test_a_damaged_stream_is_no_fault_of_the_harness(here: Site) -> None:
    """Each way of packing has an error of its own, none of which zipfile takes for a bad archive."""
    stored = build_wheel(here)
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        wheel = stored.with_name(f"packed-{method}.whl")
        with zipfile.ZipFile(stored) as old, zipfile.ZipFile(wheel, "w", method) as new:
            for member in old.infolist():
                new.writestr(member.filename, old.read(member))
            start = new.getinfo(f"{PATH}/config.json").header_offset
        data = bytearray(wheel.read_bytes())
        data[start + 80 : start + 140] = b"\xff" * 60
        wheel.write_bytes(data)
        with pytest.raises(CheckpointError) as caught:
            extract(wheel, source_of(wheel), here.root / f"out-{method}", Cache(here.cache))
        assert "no archive that can be read" in str(caught.value), method


def test_a_pickle_needs_the_rows_permission(here: Site) -> None:
    wheel = build_wheel(here)
    bare = wheel.with_name("bare-1.0-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(bare, "w") as new:
        for member in old.infolist():
            name = member.filename.replace("model.safetensors", "pytorch_model.bin").replace("packed-1", "bare-1")
            new.writestr(name, old.read(member).replace(b"Name: packed", b"Name: bare"))
    kind, text = here.outcome(source_of(bare, wheel="bare==1.0"))
    assert (kind, "'allow_pickle'" in text) == ("invalid_checkpoint", True), text
    assert here.resolve(source_of(bare, wheel="bare==1.0", allow_pickle="published so")).format == "pickle"


@pytest.mark.checkpoint
def test_a_packaged_checkpoint_from_the_configured_index(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.environ = dict(os.environ)
    source = WheelSource(
        wheel="rxnmapper==0.4.3",
        path="rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k",
        sha256="27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
        allow_pickle="the package ships pytorch_model.bin only",
    )
    checkpoint = site.resolve(source)
    assert {fact.name: fact.size for fact in checkpoint.files} == {
        "config.json": 1219,
        "pytorch_model.bin": 3212952,
        "special_tokens_map.json": 112,
        "tokenizer_config.json": 2,
        "vocab.txt": 3525,
    }
    config = json.loads((Path(checkpoint.folder) / "config.json").read_text())
    assert (checkpoint.model_type, config["num_attention_heads"]) == ("albert", 8)
    release()
