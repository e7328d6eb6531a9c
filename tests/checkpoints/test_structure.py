import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.checkpoints.structure import IncompleteError, Structure, inspect
from harness.errors import CheckpointError
from tests.checkpoints.site import write_checkpoint


def look(folder: Path, **allowed: bool) -> Structure:
    names = [path.name for path in folder.iterdir()]
    return inspect(folder, names, "folder:x", **{"allow_pickle": False, **allowed})


def test_shards_count_together(tmp_path: Path) -> None:
    shards = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    assert look(write_checkpoint(tmp_path, shards=2, elements=4)) == Structure(
        format="safetensors",
        weights=shards,
        weight_bytes=sum((tmp_path / name).stat().st_size for name in shards),
        stored_dtype="float16",
        parameters=8,
        architecture="LlamaForCausalLM",
        model_type="llama",
    )


def test_a_pickle_tells_only_its_size(tmp_path: Path) -> None:
    (write_checkpoint(tmp_path) / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    found = look(tmp_path, allow_pickle=True)
    assert (found.format, found.weights, found.parameters) == ("pickle", ("pytorch_model.bin",), None)


def index_to(name: str, tensor: str = "w0") -> Callable[[Path], object]:
    document = {"weight_map": {tensor: name}}
    return lambda folder: (folder / "model.safetensors.index.json").write_text(json.dumps(document))


SHARD = "model-00001-of-00002.safetensors"
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
    "config is a list": (lambda folder: (folder / "config.json").write_text("[]"), "no JSON object"),
    "config is cut": (lambda folder: (folder / "config.json").write_text("{"), "corrupt: config.json is no JSON"),
    "no weights": (lambda folder: [path.unlink() for path in folder.glob("*.safetensors")], "no weights"),
    "lost shard": (lambda folder: (folder / SHARD).unlink(), f"names '{SHARD}', not there \\(1 missing\\)"),
    "empty shard": (lambda folder: (folder / SHARD).write_bytes(b""), f"corrupt: {SHARD} is empty"),
    "pointer": (lambda folder: (folder / SHARD).write_text("version https://git-lfs"), f"{SHARD} is a Git LFS pointer"),
    "tokenizer pointer": (
        lambda folder: (folder / "tokenizer.json").write_text("version https://git-lfs"),
        "tokenizer.json is a Git LFS pointer",
    ),
    "index leads outside": (index_to("../../x.safetensors"), "leaves the checkpoint's folder"),
    "index has no map": (lambda folder: (folder / "model.safetensors.index.json").write_text("{}"), "no weight_map"),
    "lost tensor": (index_to(SHARD, "w9"), "names tensor 'w9', which no shard holds"),
}


@pytest.mark.parametrize(("spoil", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_not_whole(tmp_path: Path, spoil: Callable[[Path], object], words: str) -> None:
    spoil(write_checkpoint(tmp_path, shards=2))
    with pytest.raises(CheckpointError, match=words) as caught:
        look(tmp_path)
    assert caught.value.kind == "invalid_checkpoint"


def test_what_is_missing_is_told_from_what_is_corrupt(tmp_path: Path) -> None:
    (write_checkpoint(tmp_path, shards=2) / SHARD).unlink()
    with pytest.raises(IncompleteError):
        look(tmp_path)


def test_a_pickle_that_is_not_allowed(tmp_path: Path) -> None:
    (write_checkpoint(tmp_path) / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin, a pickle; give a reason under 'allow_pickle'"):
        look(tmp_path)


def test_code_of_another_repository_is_refused(tmp_path: Path) -> None:
    # the pin of one repository does not reach the code of another
    write_checkpoint(tmp_path)
    config = {"model_type": "x", "auto_map": {"AutoModel": "other/code--modeling.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert look(tmp_path).model_type == "x"
    with pytest.raises(CheckpointError, match=r"another repository \('other/code--modeling.Model'\)"):
        look(tmp_path, allow_remote_code=True)
