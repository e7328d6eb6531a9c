"""Compressed weights: the same numbers from two bytes a parameter, and a shadow again once somebody writes."""

import mmap

import pytest
import torch

import spyre_emulator
from spyre_emulator import memory


@pytest.fixture
def _compressed():
    with spyre_emulator.using(compressed_weights=True):
        yield


def weight(rows=300, columns=256):
    return torch.randn(rows, columns).half()


@pytest.mark.usefixtures("_compressed")
def test_large_half_weights_become_codes_that_read_as_before():
    host = weight()
    device = host.to("spyre")
    assert memory.codes_of(device) is not None
    assert torch.equal(device.cpu(), host.float().to("spyre").half().cpu())
    assert memory.codes_of(device) is not None
    assert memory.codes_of(host[:10].to("spyre")) is None
    assert memory.codes_of(host.float().to("spyre")) is None
    assert memory.codes_of(torch.full((300, 256), torch.inf).half().to("spyre")) is None


@pytest.mark.usefixtures("_compressed")
@pytest.mark.parametrize("columns", [256, 4096])
@pytest.mark.parametrize("compiled", [False, True])
def test_matmul_and_embedding_decode_in_blocks(compiled, columns):
    host = weight(300, columns)
    x = torch.randn(5, columns).half().to("spyre")
    ids = torch.tensor([[1, 7], [299, 0]]).to("spyre")

    def use(w, x, ids):
        return torch.nn.functional.linear(x, w), torch.nn.functional.embedding(ids, w), x.new_ones(5, 300) @ w

    torch._dynamo.reset()
    packed = host.to("spyre")
    with spyre_emulator.using(compressed_weights=False):
        expected = use(host.to("spyre"), x, ids)
    result = (torch.compile(use) if compiled else use)(packed, x, ids)
    assert memory.codes_of(packed) is not None
    for a, b in zip(result, expected, strict=True):
        # Blocks add in another order: one DLFloat16 step, and float32's own error where a sum cancels.
        torch.testing.assert_close(a.cpu(), b.cpu(), atol=columns * 2.0**-23, rtol=2**-8)


@pytest.mark.usefixtures("_compressed")
def test_other_readers_decode_for_once_and_writers_for_good():
    host = weight()
    device = host.to("spyre")
    assert torch.equal((device * 2)[3:].cpu(), (device.clone() * 2)[3:].cpu())
    assert memory.codes_of(device) is not None
    assert memory.codes_of(device[5:].t()) is not None
    device[5:].mul_(2)
    assert memory.codes_of(device) is None
    torch.testing.assert_close(
        device[:6].cpu().float(), torch.cat([host[:5], host[5:6] * 2]).float(), atol=0, rtol=1e-2
    )
    assert device.untyped_storage().nbytes() == host.untyped_storage().nbytes()


@pytest.mark.usefixtures("_compressed")
@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system takes no pages back")
def test_a_compressed_weight_keeps_no_page_of_its_shadow_even_where_memory_was_used_before():
    host = weight()
    device = torch.empty(host.shape, dtype=torch.float16, device="spyre")
    shadow = memory.shadow(device).fill_(1)
    device.copy_(host)
    assert memory.codes_of(device) is not None
    assert int(shadow.count_nonzero()) * shadow.element_size() < 2 * mmap.PAGESIZE
    assert torch.equal(device.cpu(), host.to("spyre").cpu())
