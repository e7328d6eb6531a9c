from __future__ import annotations

import pytest
import torch

from harness.checkpoints.fingerprint import weights_digest
from harness.records import Checkpoint

ONE = Checkpoint(folder="/a", origin="folder:a", format="safetensors", digest="1" * 64)
OTHER = ONE.model_copy(update={"digest": "2" * 64})


def model(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    net.register_buffer("positions", torch.arange(4))
    return net


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_dtype_does_not_matter(dtype: torch.dtype) -> None:
    assert weights_digest(model().to(dtype), ONE) == weights_digest(model(), ONE)


def test_underflow_and_zeros_keep_their_sign() -> None:
    tiny, rounded = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    for net in (tiny, rounded):
        net.weight.data = torch.tensor([[1e-30, -1e-30]])
        net.bias.data = torch.tensor([0.0])
    rounded.half()
    assert rounded.weight.count_nonzero() == 0
    assert weights_digest(tiny, ONE) == weights_digest(rounded, ONE)


def test_weights_drawn_again_are_found() -> None:
    # both sides initialised at random, after different uses of the generator
    assert weights_digest(model(0), ONE) == weights_digest(model(0), ONE)
    assert weights_digest(model(0), ONE) != weights_digest(model(1), ONE)


def test_one_tensor_drawn_again_is_found() -> None:
    one, two = model(), model()
    torch.nn.init.normal_(two[0].bias)
    assert weights_digest(one, ONE) != weights_digest(two, ONE)


def test_files_names_shapes_and_whole_numbers_matter() -> None:
    renamed, reshaped, counted = model(), model(), model()
    renamed.add_module("extra", torch.nn.Linear(1, 1))
    reshaped[0].weight.data = reshaped[0].weight.data.reshape(4, 16)
    counted.positions += 1
    digests = [weights_digest(net, ONE) for net in (model(), renamed, reshaped, counted)]
    assert len({*digests, weights_digest(model(), OTHER)}) == 5


def test_buffers_that_are_not_stored_do_not_matter() -> None:
    one, two = model(), model()
    one.register_buffer("cosines", torch.tensor([1e-9]), persistent=False)
    two.register_buffer("cosines", torch.tensor([-1e-9]), persistent=False)
    assert weights_digest(one, ONE) == weights_digest(two, ONE)


def test_layout_in_memory_does_not_matter() -> None:
    one, two = model(), model()
    two[0].weight.data = two[0].weight.data.t().contiguous().t()
    assert not two[0].weight.is_contiguous()
    assert weights_digest(one, ONE) == weights_digest(two, ONE)
