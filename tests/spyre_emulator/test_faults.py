"""Every silent fault changes results under its trigger and nothing beside it; crash entries give their outcome."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import spyre_emulator
from spyre_emulator import Fault, fault_catalogue, faults, register_fault, unregister_fault
from spyre_emulator.faults import AtOperator, active_faults, switch_on_from
from spyre_emulator.faults.__main__ import as_markdown
from spyre_emulator.settings import SettingError

pytestmark = pytest.mark.filterwarnings("ignore:.*falling back to cpu", "ignore:Backend Spyre does not support int64")
HALF, BF16, FP32 = torch.float16, torch.bfloat16, torch.float32
Tensor = torch.Tensor


def random(*shape: int, seed: int = 0, dtype: torch.dtype = HALF) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to("spyre")


def compiled(call: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    return torch.compile(call, backend="spyre", dynamic=False)(*inputs).cpu()


def append(rows: int) -> Tensor:
    return torch.cat([random(1, 8, 67, 128), random(1, 8, rows, 128, seed=1)], 2).cpu()


def overwrite_row(*, eager: bool) -> Tensor:
    def call(x: Tensor, row: Tensor) -> Tensor:
        return torch.ops.spyre.overwrite_f(row, x, [0], [1])

    inputs = random(4, 64), random(1, 64, seed=1)
    return call(*inputs).cpu() if eager else compiled(call, *inputs)


def rms_norm(x: Tensor) -> Tensor:
    return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)).cpu()


def heads(length: int) -> Tensor:
    x = random(1, length, 256)
    return compiled(lambda x: x.view(1, length, 4, 64).transpose(1, 2) + 1.0, x)


def rotate_half(x: Tensor) -> Tensor:
    first, second = x[..., :64], x[..., 64:]
    return torch.cat([-second, first], -1).cpu()


def rotated_chunks(x: Tensor) -> Tensor:
    first, second = (half.contiguous() for half in x.chunk(2, -1))
    return torch.cat([-second, first], -1).cpu()


def overwrite(columns: slice) -> Tensor:
    x = random(4, 64)
    x[:, columns] = random(4, 64, seed=1)[:, columns]
    return x.cpu()


def index_copy(*shape: int, dim: int) -> Tensor:
    rows = list(shape)
    rows[dim] = 2
    return random(*shape).index_copy(dim, torch.tensor([0, 2]).to("spyre"), random(*rows, seed=1)).cpu()


def take(index: Tensor) -> Tensor:
    return (torch.index_select(random(8, 64), 0, index.to("spyre")) @ random(64, 64, seed=1)).cpu()


def gather(columns: int) -> Tensor:
    index = torch.randint(0, 100, (5, columns), generator=torch.Generator().manual_seed(1)).to("spyre")
    return torch.gather(random(5, 100), 1, index).cpu()


def attention(queries: int, keys: int, *, causal: bool = False) -> Tensor:
    q, k, v = random(1, 2, queries, 64), random(1, 2, keys, 64, seed=1), random(1, 2, keys, 64, seed=2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).cpu()


def broadcast_mean(*, with_zeros: bool) -> Tensor:
    mean = random(4, 64).mean(-1, keepdim=True)
    if with_zeros:
        mean = mean + torch.zeros_like(mean)
    return (mean + random(4, 64, seed=1)).cpu()


def small_mean(scale: float) -> Tensor:
    return (random(4, 256).abs() * scale).mean(-1).cpu()


def minus_infinities(dtype: torch.dtype) -> Tensor:
    mask = torch.tensor([[0.0, -torch.inf], [0.0, 0.0]], dtype=dtype).to("spyre")
    return (mask + mask).cpu()


def special(*values: float) -> Tensor:
    return torch.log(torch.tensor(values, dtype=HALF).to("spyre")).cpu()


def reused(*, fallback: bool) -> Tensor:
    def call(x: Tensor) -> Tensor:
        kept = x * 2.0
        angle = torch.cos(x) if fallback else torch.exp(x)
        return (angle * 3.0 + 1.0) * kept

    return compiled(call, random(4, 64))


def decode(*, writes: bool) -> Tensor:
    def call(x: Tensor, cache: Tensor, position: Tensor) -> Tensor:
        kept = x * 2.0
        filled = cache.index_copy(0, position, x * 3.0) if writes else cache * 3.0
        return (filled[:1] + 1.0) * 2.0 * kept

    return compiled(call, random(1, 64), random(8, 64, seed=1), torch.tensor([0]).to("spyre"))


def aliased(start: int) -> Tensor:
    def call(x: Tensor) -> Tensor:
        tail = (x * 2.0)[start : start + 2]
        return (x * 3.0).sum(0) + tail

    return compiled(call, random(8, 64))


def route(k: int, dtype: torch.dtype) -> Tensor:
    return random(4, 16, dtype=dtype).topk(k).indices.cpu()


def bmm(rows: int) -> Tensor:
    return torch.bmm(random(2, rows, 32), random(2, 32, 8, seed=1)).cpu()


def to_bool(columns: int) -> Tensor:
    return torch.ones(2, columns).to("spyre").bool().cpu()


class Case(NamedTuple):
    """A call under the trigger of a fault and one just beside it."""

    trigger: Callable[[], Tensor]
    near_miss: Callable[[], Tensor]


SILENT = {
    "F01": Case(lambda: append(1), lambda: append(2)),
    "F02": Case(lambda: overwrite_row(eager=True), lambda: overwrite_row(eager=False)),
    "F03": Case(
        lambda: rms_norm(random(2, 8, 4, 64).transpose(1, 2)),
        lambda: rms_norm(random(2, 8, 4, 64).transpose(1, 2).contiguous()),
    ),
    "F04": Case(lambda: heads(64), lambda: heads(1)),
    "F05": Case(
        lambda: (random(2, 64, 128).transpose(1, 2) * 2.0).cpu(),
        lambda: (random(2, 64, 128).transpose(0, 1) * 2.0).cpu(),
    ),
    "F06": Case(lambda: rotate_half(random(1, 4, 8, 128)), lambda: rotated_chunks(random(1, 4, 8, 128))),
    "F07": Case(
        lambda: compiled(lambda x: x * 2.0, random(4, 64)[1:]), lambda: compiled(lambda x: x * 2.0, random(4, 64)[:3])
    ),
    "F08": Case(lambda: overwrite(slice(0, 32)), lambda: overwrite(slice(None))),
    "F09": Case(
        lambda: (random(4, 128).narrow(1, 64, 64) * 2.0).cpu(), lambda: (random(128, 64).narrow(0, 64, 64) * 2.0).cpu()
    ),
    "F10": Case(lambda: index_copy(2, 4, 8, 64, dim=2), lambda: index_copy(2, 8, 64, dim=1)),
    "F11": Case(lambda: take(torch.tensor(3)), lambda: take(torch.tensor([3]))),
    "F12": Case(lambda: gather(70), lambda: gather(64)),
    "F13": Case(lambda: random(4, 64)[1:3].cpu(), lambda: random(4, 64).cpu()),
    "F14": Case(lambda: attention(70, 70, causal=True), lambda: attention(64, 64, causal=True)),
    "F15": Case(lambda: broadcast_mean(with_zeros=True), lambda: broadcast_mean(with_zeros=False)),
    "F16": Case(lambda: random(33, 64, dtype=FP32).mean(-1).cpu(), lambda: random(32, 64, dtype=FP32).mean(-1).cpu()),
    "F17": Case(lambda: small_mean(1e-6), lambda: small_mean(1.0)),
    "F18": Case(
        lambda: nn.LayerNorm(64, elementwise_affine=False)(random(4, 64)).cpu(),
        lambda: nn.LayerNorm(64).half().to("spyre")(random(4, 64)).detach().cpu(),
    ),
    "F19": Case(
        lambda: F.rms_norm(random(4, 64) * 0.01, (64,), eps=1e-2).cpu(),
        lambda: F.layer_norm(random(4, 64) * 0.01, (64,), eps=1e-2).cpu(),
    ),
    "F20": Case(
        lambda: (random(2, 64, dtype=FP32) + random(2, 64, dtype=FP32)).cpu(),
        lambda: (random(2, 64) + random(2, 64)).cpu(),
    ),
    "F21": Case(
        lambda: torch.tensor([18.125 - 0.03125], dtype=HALF).to("spyre").to(BF16).cpu(),
        lambda: torch.tensor([18.0], dtype=BF16).to("spyre").cpu(),
    ),
    "F22": Case(
        lambda: torch.tensor([2.9981136e-05], dtype=HALF).to("spyre").cpu(),
        lambda: torch.tensor([6.1035e-05], dtype=HALF).to("spyre").cpu(),
    ),
    "F23": Case(lambda: random(2, 64, dtype=BF16).to(FP32).cpu(), lambda: random(2, 64).to(FP32).cpu()),
    "F24": Case(lambda: to_bool(31), lambda: to_bool(32)),
    "F26": Case(lambda: torch.exp(minus_infinities(HALF).to("spyre") * 0.0).cpu(), lambda: random(2, 2).cpu()),
    "F27": Case(lambda: minus_infinities(BF16), lambda: minus_infinities(HALF)),
    "F28": Case(lambda: special(torch.inf, torch.nan, 1.0), lambda: special(2.0, 1.0)),
    "F29": Case(
        lambda: F.mish(torch.tensor([-100.0, 1.0], dtype=HALF).to("spyre")).cpu(), lambda: F.mish(random(64)).cpu()
    ),
    "F30": Case(
        lambda: torch.cos(torch.arange(1000.0, 1100.0).to("spyre")).cpu(),
        lambda: torch.sin(torch.arange(1000.0, 1100.0).to("spyre")).cpu(),
    ),
    "F31": Case(lambda: reused(fallback=True), lambda: reused(fallback=False)),
    "F32": Case(lambda: decode(writes=True), lambda: decode(writes=False)),
    "F33": Case(lambda: aliased(2), lambda: aliased(0)),
    "F37": Case(lambda: attention(1, 65), lambda: attention(64, 64)),
    "F38": Case(lambda: route(8, BF16), lambda: route(4, BF16)),
    "F39": Case(lambda: bmm(1024), lambda: bmm(32)),
}


def same(a: Tensor, b: Tensor) -> bool:
    return (
        a.dtype is b.dtype
        and a.shape == b.shape
        and bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) and torch.equal(a.isnan(), b.isnan()))
    )


@pytest.mark.parametrize("fault_id", SILENT)
def test_a_silent_fault_acts_under_its_trigger_only(fault_id: str) -> None:
    case = SILENT[fault_id]
    clean, clean_near = case.trigger(), case.near_miss()
    with faults(fault_id):
        assert not same(case.trigger(), clean)
        assert same(case.near_miss(), clean_near)
        assert spyre_emulator.configuration()["faults"] == fault_id
    assert same(case.trigger(), clean)
    assert spyre_emulator.configuration()["faults"] == spyre_emulator.configuration()["hooked_operators"] == ""


def fp8_matmul() -> None:
    a = torch.ones(2, 64).to(torch.float8_e4m3fn).to("spyre")
    one = torch.ones(()).to("spyre")
    torch._scaled_mm(a, torch.ones(64, 64).to(torch.float8_e4m3fn).to("spyre").t(), one, one, out_dtype=HALF)


def rope_cache() -> None:
    compiled(lambda x: torch.cos(x * 2.0), random(4, 64))


def pinned_fallback() -> None:
    compiled(lambda x: torch.cos(x * 2.0) + 1.0, random(4, 64))


def lm_head(columns: int) -> Tensor:
    return F.linear(random(1, 64), torch.zeros(columns, 64, dtype=HALF, device="spyre")).cpu()


def project(features: int) -> Tensor:
    return F.linear(random(2, features), random(64, features, seed=1)).cpu()


RAISING = {
    "F25": (lambda: random(4).to(torch.int32) == 3, lambda: random(4) == 3.0, "DataFormats.IEEE_INT32"),
    "F34": (pinned_fallback, lambda: compiled(lambda x: torch.cos(x) + 1.0, random(4, 64)), "pinned to LX"),
    "F41": (
        lambda: torch.bmm(random(44, 1, 2880), random(44, 2880, 1)),
        lambda: torch.bmm(random(43, 1, 2880), random(43, 2880, 1)),
        "work division",
    ),
    "F42": (lambda: lm_head(49216), lambda: lm_head(49152), "work division"),
    "F43": (lambda: project(784), lambda: project(768), "K=784"),
    "F45": (lambda: gather(64), lambda: take(torch.tensor([3])), "does not support"),
    "F46": (lambda: random(63, 64).transpose(0, 1), lambda: random(64, 64).transpose(0, 1), "fewer than 64"),
    "F47": (
        lambda: torch.cat([random(4, 63), random(4, 65)], 1),
        lambda: torch.cat([random(4, 64), random(4, 65)], 1),
        "no offset-free alternative stick dim",
    ),
    "F48": (lambda: F.layer_norm(random(4, 64), (64,)), lambda: F.rms_norm(random(4, 64), (64,)), "layer_norm"),
}


@pytest.mark.parametrize("fault_id", RAISING)
def test_a_crash_raises_under_its_trigger_only(fault_id: str) -> None:
    trigger, near_miss, text = RAISING[fault_id]
    trigger()
    with faults(fault_id):
        near_miss()
        with pytest.raises(RuntimeError, match=text) as raised:
            trigger()
    if fault_id != "F34":
        assert type(raised.value).__name__ == "InductorError"
        assert str(raised.value).startswith("Unsupported: ")
    trigger()


def ending(call: Callable[[], object]) -> int:
    """How a child process ends that makes `call`: 0, 1 for an exception, or minus the signal."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        status = 1
        try:
            call()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    ("fault_id", "call", "number"), [("F44", fp8_matmul, signal.SIGABRT), ("F36", rope_cache, signal.SIGSEGV)]
)
def test_a_crash_that_ends_the_process_does(fault_id: str, call: Callable[[], object], number: int) -> None:
    with faults(fault_id):
        assert ending(lambda: project(64)) == 0
        assert ending(call) == -number


def test_the_catalogue_is_whole_and_says_what_it_lacks() -> None:
    catalogue = {f.id: f for f in fault_catalogue()}
    assert list(catalogue) == [f"F{n:02d}" for n in range(1, 49)]
    missing = {i: f.not_modelled for i, f in catalogue.items() if f.not_modelled}
    modelled = {*SILENT, *RAISING, "F35", "F36", "F44"}  # F35 in test_distributed.py
    assert set(catalogue) == modelled | set(missing)
    assert set(missing) == {"F40"}
    assert all(f.source and f.trigger and f.effect and f.title for f in catalogue.values())


def test_an_unknown_or_unmodelled_fault_is_refused() -> None:
    with pytest.raises(SettingError, match="no fault 'F7'; did you mean F"), faults("F7"):
        pass
    with pytest.raises(SettingError, match="F40 cannot be switched on: the source states neither"), faults("F40"):
        pass
    with pytest.raises(SettingError, match="SPYRE_EMULATOR_FAULTS: no fault 'X99'"):
        switch_on_from({"SPYRE_EMULATOR_FAULTS": "F07, X99"})
    assert active_faults() == ()


def doubled_product() -> Fault:
    return Fault(
        "X01",
        "mm doubled",
        "mm of two rows",
        "twice the product",
        "silent",
        "made for this test",
        (AtOperator(("aten.mm.default",), lambda call: call.args[0].shape[0] == 2, lambda call: call.proceed() * 2),),
    )


def test_a_fault_of_ones_own_acts_and_is_named() -> None:
    clean = project(64)
    own = register_fault(doubled_product())
    try:
        assert own in fault_catalogue()
        with pytest.raises(SettingError, match="the id is taken by 'mm doubled'"):
            register_fault(doubled_product())
        with faults("X01", "F07"):
            assert spyre_emulator.configuration()["faults"] == "F07,X01"
            assert torch.equal(project(64), 2 * clean)
            with pytest.raises(SettingError, match="X01 is on"):
                unregister_fault("X01")
    finally:
        unregister_fault("X01")
    assert torch.equal(project(64), clean)


def test_contexts_nest() -> None:
    x = random(4, 64)[1:]
    clean = compiled(lambda x: x * 2.0, x)
    with faults("F07"):
        with faults("F07", "F08"):
            pass
        assert active_faults() == ("F07",)
        assert not torch.equal(compiled(lambda x: x * 2.0, x), clean)
    assert torch.equal(compiled(lambda x: x * 2.0, x), clean)


def test_a_fault_needs_points_or_a_reason() -> None:
    with pytest.raises(ValueError, match="fault X02: needs points"):
        Fault("X02", "t", "c", "e", "silent", "s")


def test_the_environment_switches_on_and_imports_modules(tmp_path: Path) -> None:
    (tmp_path / "my_faults.py").write_text(
        "import spyre_emulator as s\n"
        "from spyre_emulator.faults import AtOperator\n"
        "s.register_fault(s.Fault('MINE', 't', 'c', 'e', 'silent', 'me', "
        "(AtOperator(('aten.exp.default',), lambda c: True, lambda c: c.proceed() + 1),)))\n"
    )

    def switch() -> None:
        sys.path.insert(0, str(tmp_path))
        switch_on_from({"SPYRE_EMULATOR_FAULTS": "F07, my_faults:MINE"})
        assert spyre_emulator.configuration()["faults"] == "F07,MINE"
        assert torch.equal(torch.exp(random(4) * 0.0).cpu(), torch.full((4,), 2.0, dtype=HALF))

    assert ending(switch) == 0


def test_the_documentation_holds_the_catalogue() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
    assert page.endswith(as_markdown()), "run python -m spyre_emulator.faults and put its output at the end of the page"


@pytest.mark.parametrize(
    ("op", "remedy"),
    [
        ("aten.mmm.default", "no operator 'aten.mmm.default'"),
        ("mm", "no operator 'mm'"),
        ("aten.add_.Tensor", "name that one"),
        ("aten.clone.default", "use AtCopy"),
        ("aten.transpose.int", "use AtView"),
    ],
)
def test_an_operator_that_no_hook_sees_is_refused(op: str, remedy: str) -> None:
    register_fault(Fault("X03", "t", "c", "e", "silent", "s", (AtOperator((op,), lambda c: True, lambda c: None),)))
    try:
        with pytest.raises(SettingError, match=remedy), faults("X03"):
            pass
        assert active_faults() == ()
    finally:
        unregister_fault("X03")


def test_a_fault_acts_on_an_operator_whose_result_depends_on_data() -> None:
    point = AtOperator(("aten.nonzero.default",), lambda c: True, lambda c: c.proceed() + 1)
    register_fault(Fault("X04", "t", "c", "e", "silent", "s", (point,)))
    try:
        x = torch.tensor([0.0, 1.0]).to("spyre")
        with faults("X04"):
            assert torch.nonzero(x).cpu().tolist() == [[2]]
        assert torch.nonzero(x).cpu().tolist() == [[1]]
    finally:
        unregister_fault("X04")


def tiny_llama() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    return LlamaForCausalLM(config).half().eval().to("spyre")


IDS = torch.arange(64)[None]


@torch.no_grad()
def prefill(model: Any) -> Tensor:
    return model(IDS.to("spyre"), use_cache=False).logits.cpu()


@torch.no_grad()
def decode_step(model: Any) -> Tensor:
    cache = model(IDS.to("spyre")).past_key_values
    return model(torch.tensor([[5]]).to("spyre"), past_key_values=cache).logits.cpu()


def test_an_unmodified_model_shows_faults_eagerly_and_compiled() -> None:
    model = tiny_llama()
    compiled_model = torch.compile(model, backend="spyre", dynamic=False)
    clean, step = prefill(model), decode_step(model)
    assert same(prefill(compiled_model), clean)
    for fault_id in ("F06", "F16", "F30"):
        with faults(fault_id):
            assert not same(prefill(model), clean), fault_id
            assert not same(prefill(compiled_model), clean), fault_id
    with faults("F04"):
        assert same(prefill(model), clean)
        assert not same(prefill(compiled_model), clean)
    for fault_id in ("F01", "F37"):
        with faults(fault_id):
            assert same(prefill(model), clean), fault_id
            assert not same(decode_step(model), step), fault_id
    for fault_id in ("F07", "F10", "F12", "F18", "F19", "F38", "F39"):
        with faults(fault_id):
            assert same(prefill(model), clean), fault_id
            assert same(prefill(compiled_model), clean), fault_id
    assert same(prefill(compiled_model), clean)


BOTH_MODES: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "F05": (lambda x: x.transpose(1, 2) * 2.0, random(2, 64, 128)),
    "F06": (lambda x: torch.cat([-x[..., 64:], x[..., :64]], -1), random(1, 4, 8, 128)),
    "F09": (lambda x: x[:, 64:128] * 2.0, random(4, 128)),
    "F16": (lambda x: x.mean(-1), random(33, 64, dtype=FP32)),
    "F19": (lambda x: F.rms_norm(x, (64,), eps=1e-2), random(4, 64)),
    "F24": (lambda x: x.to(torch.bool), random(2, 31, dtype=FP32)),
    "F29": (lambda x: F.mish(x), random(4, 64) * 20.0),
}


@pytest.mark.parametrize("fault_id", BOTH_MODES)
def test_eager_and_compiled_are_wrong_alike(fault_id: str) -> None:
    call, x = BOTH_MODES[fault_id]
    clean = call(x).cpu()
    with faults(fault_id):
        eager = call(x).cpu()
        assert not same(eager, clean)
        assert same(compiled(call, x), eager)
    assert same(compiled(call, x), clean)
