import pytest

from harness.checkpoints.selection import refuse_unsafe_name, select, weight_files
from harness.errors import CheckpointError

NAMES = (
    "config.json",
    "vocab.txt",
    "model-00001-of-00001.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "training_args.bin",
    "consolidated.safetensors",
    "original/params.json",
    "2_Dense/model.safetensors",
    "2_Dense/config.json",
    "modeling.py",
    "README.md",
)


def test_safetensors_win_whatever_is_allowed() -> None:
    texts = ("2_Dense/config.json", "config.json", "model-00001-of-00001.safetensors", "model.safetensors.index.json")
    assert select(NAMES, allow_pickle=True) == (*texts, "vocab.txt")
    assert select(NAMES, allow_pickle=True, allow_remote_code=True) == (*texts, "modeling.py", "vocab.txt")


def test_pickles_only_where_allowed_and_alone() -> None:
    names = ("config.json", "pytorch_model.bin", "training_args.bin", "optimizer.pt")
    assert select(names, allow_pickle=False) == ("config.json",)
    assert select(names, allow_pickle=True) == ("config.json", "pytorch_model.bin")
    assert weight_files(names) == ("pytorch_model.bin",)


UNSAFE = ("", "/etc/passwd", "../a", "a/../../b", "a\\b", "C:/a", "a\0b", "a\nb", "x" * 256, "\u202egnp.json")


@pytest.mark.parametrize("name", UNSAFE)
def test_names_that_leave_the_folder_or_hide(name: str) -> None:
    with pytest.raises(CheckpointError, match=r"hub:a/b: the file name .* refused") as caught:
        refuse_unsafe_name(name, "hub:a/b")
    assert caught.value.kind == "invalid_checkpoint"
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["a", "1_Pooling/config.json", "мир.json", "a b", "..a", "x" * 255])
def test_ordinary_names(name: str) -> None:
    refuse_unsafe_name(name, "hub:a/b")
