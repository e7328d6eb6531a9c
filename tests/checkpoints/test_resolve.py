"""What holds for every kind of source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants
from transformers import AutoModelForCausalLM

from harness.checkpoints import load_model, release, resolve
from harness.errors import CheckpointError
from harness.records import FolderSource
from tests.checkpoints.loopback_hub import Hub
from tests.checkpoints.site import REPOSITORY, Site, hub_source, write_checkpoint
from tests.checkpoints.test_load import tiny_llama


def test_resolving_needs_neither_torch_nor_the_client_of_the_hub() -> None:
    program = (
        "import sys, harness.checkpoints; "
        "print(sorted({'torch', 'transformers', 'huggingface_hub', 'numpy'} & set(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert finished.stdout == "[]\n"


def test_a_cache_that_cannot_be_written_is_infrastructure(tmp_path: Path) -> None:
    # a file where the directory should be: no user may write below it, root included
    (tmp_path / "cache").write_text("")
    source = hub_source("0" * 40)
    with pytest.raises(CheckpointError, match=f"{tmp_path / 'cache'}") as caught:
        resolve(source, cache=tmp_path / "cache", base=tmp_path)
    assert caught.value.kind == "unavailable"


def test_a_folder_needs_no_cache_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    write_checkpoint(tmp_path / "tiny")
    assert resolve(FolderSource(folder="tiny"), cache=tmp_path / "cache", base=tmp_path).parameters == 600


def test_the_same_weights_give_one_fingerprint_from_hub_and_in_any_dtype(hub: Hub, site: Site) -> None:
    checkpoint = site.resolve(hub_source(hub.add(REPOSITORY, tiny_llama(site.root / "source"))))
    seen = len(hub.requests)
    digests = {
        load_model(checkpoint, "AutoModelForCausalLM", dtype).weights_digest
        for dtype in ("float32", "float16", "bfloat16")
    }
    assert len(digests) == 1
    assert len(hub.requests) == seen, "loading asks for nothing"
    release()


def test_from_pretrained_itself_reads_the_loopback_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the library takes its endpoint from the environment when it is imported, which is long past here
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    commit = hub.add(REPOSITORY, tiny_llama(tmp_path / "source"))
    model = AutoModelForCausalLM.from_pretrained(REPOSITORY, revision=commit, cache_dir=tmp_path / "hf")
    assert model.num_parameters() == 3248
    assert len(hub.asked("/content/*", "GET")) == 1
    assert all(commit in seen.path for seen in hub.asked("*/resolve/*"))
