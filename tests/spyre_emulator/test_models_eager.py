"""Stock models of many architectures in eager mode, against CPU float32."""

import copy

import pytest
import torch

import spyre_emulator
from spyre_emulator import kernels, layout
from tests.spyre_emulator import zoo


@pytest.mark.parametrize("name", zoo.CONFIGS)
def test_close_to_the_cpu_and_blind_to_padding(name):
    model, given = zoo.build(name), zoo.inputs(name)
    reference = zoo.forward(model, given)
    device = zoo.on_device(model)
    with spyre_emulator.record() as recording:
        result = zoo.forward(device, given)
    assert result.dtype is torch.float16
    assert zoo.cosine(result, reference) >= 0.9999
    assert recording.ops_on_device > recording.fallbacks
    with spyre_emulator.using(nan_padding=True):
        assert torch.equal(zoo.forward(device, given), result)


def test_bfloat16_is_stored_with_nine_fraction_bits():
    model, given = zoo.build("llama"), zoo.inputs("llama")
    result = zoo.forward(zoo.on_device(model, torch.bfloat16), given)
    assert result.dtype is torch.bfloat16
    assert zoo.cosine(result, zoo.forward(model, given)) >= 0.9999


@pytest.mark.parametrize("name", ["qwen3_moe", "t5"])
def test_a_loaded_model_repeats_its_bits_in_copies_and_when_it_is_saved_and_loaded_again(name, tmp_path):
    """Loaded first: `half` casts what loading leaves in float32, rotary buffers and T5's `wo`, on the CPU as well."""

    def saved_and_loaded(model):
        model.save_pretrained(tmp_path / "again")
        return type(model).from_pretrained(tmp_path / "again", dtype=torch.float16).to("spyre").eval()

    device, given = saved_and_loaded(zoo.build(name)), zoo.inputs(name)
    result = zoo.forward(device, given)
    assert torch.equal(zoo.forward(device, given), result)
    for other in (copy.deepcopy(device), copy.deepcopy(device).cpu().to("spyre"), saved_and_loaded(device)):
        assert torch.equal(zoo.forward(other, given), result)


def test_nan_padding_catches_a_kernel_that_reads_padding_lanes():
    def reads_padding(call):
        correct = call.proceed()
        image = layout.device_image(call.args[0], torch.float16)
        return correct * 0 + image.sum()

    x = torch.ones(3, 70, dtype=torch.float16).to("spyre")
    kernels.add_hook("aten.sum.default", reads_padding)
    try:
        assert x.sum().item() == 3 * 128
        with spyre_emulator.using(nan_padding=True):
            assert torch.isnan(x.sum()).item()
            assert x.mean(-1).cpu().tolist() == [1.0] * 3
    finally:
        kernels.remove_hook("aten.sum.default", reads_padding)
    with spyre_emulator.using(nan_padding=True):
        assert x.sum().item() == 210
