"""Fallback warnings, strict mode and the refusals of the published stack, in its own words."""

import re
import warnings

import pytest
import torch

import spyre_emulator
from spyre_emulator import fallbacks


@pytest.fixture(autouse=True)
def _forget_warnings():
    fallbacks.reset_warnings()
    torch._dynamo.reset()


def half(*shape):
    return torch.randn(*shape, dtype=torch.float16).to("spyre")


def test_a_fallback_warns_once_per_location():
    x = half(4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            torch.cos(x)
        torch.cos(x)
    ours = [w for w in caught if w.category is spyre_emulator.FallbackWarning]
    assert [str(w.message) for w in ours] == ["aten.cos.default is falling back to cpu"] * 2
    assert all(w.filename == __file__ for w in ours)


def test_strict_turns_fallbacks_into_errors():
    x = half(4)
    with spyre_emulator.using(strict=True):
        x + x
        with pytest.raises(spyre_emulator.UnsupportedError, match=r"aten\.cos\.default would fall back to the CPU"):
            torch.cos(x)
        with pytest.raises(Exception, match=r"aten\.cos\.default would fall back to the CPU"):
            torch.compile(torch.cos)(x)


def test_published_coverage_refuses_an_operator_without_an_eager_kernel():
    x = half(4, 64)
    with spyre_emulator.using(coverage="published"):
        with pytest.raises(
            NotImplementedError, match=r"Could not run 'aten::gelu' with arguments from the 'spyre' back"
        ):
            torch.nn.functional.gelu(x)
        torch.compile(torch.nn.functional.gelu)(x)
        with pytest.raises(NotImplementedError, match=r"Could not run 'aten::erfinv'"):
            torch.erfinv(x)
    assert torch.nn.functional.gelu(x).shape == (4, 64)


REFUSED = {
    "topk with k=129 is not supported (max k=128)": (lambda x: x.topk(129), lambda: half(2, 256)),
    "topk with largest=False": (lambda x: x.topk(2, largest=False), lambda: half(2, 256)),
    "operations on torch.int64 dtype": (lambda x: x + x, lambda: torch.arange(3).to("spyre")),
    "torch.bool result of operand with device format DataFormats.IEEE_INT32": (
        lambda x: x == 1,
        lambda: torch.arange(3, dtype=torch.int32).to("spyre"),
    ),
    "batchmatmul on DataFormats.IEEE_FP32": (lambda x: x @ x, lambda: torch.ones(4, 4).to("spyre")),
    "ReStickifyOpHBM on DataFormats.IEEE_FP32": (lambda x: x + x.t(), lambda: torch.ones(4, 4).to("spyre")),
    "RMSNorm reducing more than 1 dimension": (
        lambda x: torch.nn.functional.rms_norm(x, (3, 4)),
        lambda: half(2, 3, 4),
    ),
    "Attention dropout not implemented for Spyre": (
        lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
        lambda: half(1, 2, 8, 64),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_compiler_refuses_in_the_stacks_words(what):
    function, make = REFUSED[what]
    x = make()
    with spyre_emulator.using(coverage="published"), pytest.raises(Exception, match=re.escape(what)) as caught:
        torch.compile(function)(x)
    assert "Spyre backend does not support: " in str(caught.value)
    torch._dynamo.reset()
    torch.compile(function)(x)


def test_an_operator_without_a_lowering_compiles_to_a_runner_that_raises():
    with spyre_emulator.using(coverage="published"):
        compiled = torch.compile(torch.erfinv)
        with pytest.raises(spyre_emulator.UnsupportedError, match=r"SpyreUnimplementedRunner.*aten\.erfinv\.default"):
            compiled(half(4))


def test_an_operand_beyond_the_span_of_a_core_aborts_the_back_end():
    x, weight = half(1, 2048), torch.empty(2048, 151936, dtype=torch.float16, device="meta")
    what = fallbacks.refusal(torch.ops.aten.mm.default, (x, weight), {})
    assert what is not None
    assert what.startswith("dxp_standalone --bundle died with SIGABRT: operand of shape (2048, 151936)")
