"""The device as a new user meets it: views, in-place operators, odd shapes, saving, seeds, refusals."""

import copy
import gc
import io
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch

import spyre_emulator
from spyre_emulator import memory

DEVICE = "spyre"


def close(device, host, tolerance=2e-2):
    torch.testing.assert_close(device.cpu().float(), host.float(), atol=tolerance, rtol=tolerance)


def both(*shape, dtype=torch.float16):
    x = torch.randn(*shape).to(dtype)
    return x.to(DEVICE), x.float()


VIEWS = {
    "slice with offset": lambda x: x[1:3, 2:],
    "strided slice": lambda x: x[:, ::2],
    "transpose": lambda x: x.t(),
    "view": lambda x: x.view(6, 4),
    "unfold": lambda x: x.unfold(1, 2, 2),
    "diagonal": lambda x: x.diagonal(),
    "expand": lambda x: x[:, :1].expand(4, 5),
    "select": lambda x: x[2],
    "unbind": lambda x: x.unbind(1)[3],
    "movedim and reshape": lambda x: x.movedim(0, 1).reshape(3, 8),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_read_and_compute(view):
    device, host = both(4, 6)
    close(view(device), view(host), 1e-3)
    close(view(device) + 1, view(host) + 1)


def test_a_view_shares_the_storage():
    device, _ = both(4, 6)
    assert device[1:, 2:].t().untyped_storage()._cdata == device.untyped_storage()._cdata


WRITES = {
    "multiply a slice": lambda x: x[1:3, 2:].mul_(2),
    "assign a row": lambda x: x.__setitem__(0, 5.0),
    "copy into a column": lambda x: x[:, 1].copy_(torch.ones(4)),
    "add to a transposed row": lambda x: x.t()[2].add_(1),
    "masked assignment": lambda x: x.__setitem__(x > 0, 0.0),
    "indexed addition": lambda x: x.__setitem__([0, 2], x[[0, 2]] + 1),
    "fill a strided view": lambda x: x[::2, ::3].fill_(7),
    "index_copy_": lambda x: x.index_copy_(0, torch.tensor([3, 1], device=x.device), x[:2].clone()),
    "indexed column": lambda x: x.__setitem__((slice(None), torch.tensor([3, 1], device=x.device)), x[:, :2].clone()),
    "clamp_ and relu_": lambda x: x.clamp_(-0.5, 0.5).relu_(),
    "zero_ and sub_": lambda x: x[1].zero_().sub_(3),
    "scatter_": lambda x: x.scatter_(1, torch.zeros(4, 1, dtype=torch.int64, device=x.device), x[:, 5:].clone()),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_through_views_reach_the_base(write):
    device, host = both(4, 6)
    write(device)
    write(host)
    close(device, host)


@pytest.mark.parametrize("write", [w for n, w in WRITES.items() if n != "copy into a column"])
def test_compiled_mutation_of_an_input(write):
    device, host = both(4, 6)

    def step(x):
        write(x)
        return x * 2

    torch._dynamo.reset()
    close(torch.compile(step)(device), step(host))
    close(device, host)


def test_zero_length_tensors():
    empty = torch.empty(0, 3, dtype=torch.float16).to(DEVICE)
    other = torch.ones(3, 2, dtype=torch.float16).to(DEVICE)
    assert (empty + 1).shape == (0, 3)
    assert (empty @ other).shape == (0, 2)
    assert torch.softmax(empty, -1).shape == (0, 3)
    assert torch.cat([empty, other.t()]).shape == (2, 3)
    assert empty.sum().item() == 0.0
    assert empty.sum(0).cpu().tolist() == [0.0] * 3
    assert torch.isnan(empty.mean(0)).all()
    assert empty.cpu().shape == (0, 3)


def test_indices_without_dimensions():
    device, host = both(4, 6)
    close(device[torch.tensor(2).to(DEVICE)], host[2])
    close(device.index_select(0, torch.tensor(1).to(DEVICE)), host[1:2])
    close(device.index_select(0, torch.tensor([1]).to(DEVICE)), host[1:2])
    assert torch.tensor(3).to(DEVICE).item() == 3
    close(device * torch.tensor(2.0), host * 2)


def test_autocast_lowers_the_matmul_family():
    layer = torch.nn.Linear(6, 3)
    x = torch.randn(4, 6)
    device = copy.deepcopy(layer).to(DEVICE)
    with torch.autocast(DEVICE, dtype=torch.float16):
        result = device(x.to(DEVICE))
    assert result.dtype is torch.float16
    close(result, layer(x))


def test_saved_and_loaded_with_and_without_the_device():
    x = torch.randn(4, 6)
    saved = {"half": x.half().to(DEVICE), "bfloat16": x.bfloat16().to(DEVICE), "float": x.to(DEVICE)}
    saved["view"] = saved["half"][1:, 2:]
    stream = io.BytesIO()
    torch.save(saved, stream)
    stream.seek(0)
    on_device = torch.load(stream)
    stream.seek(0)
    on_host = torch.load(stream, map_location="cpu")
    for name, value in saved.items():
        assert on_device[name].device == value.device
        assert on_host[name].device.type == "cpu"
        assert torch.equal(on_device[name].cpu(), value.cpu())
        assert torch.equal(on_host[name], value.cpu())


def test_pickled_and_copied():
    x = torch.randn(4, 6).half().to(DEVICE)
    again = pickle.loads(pickle.dumps(x))
    assert (again.device, again.dtype) == (x.device, x.dtype)
    assert torch.equal(again.cpu(), x.cpu())
    again.mul_(2)
    assert torch.equal(copy.deepcopy(x).cpu(), x.cpu())


def test_tensors_do_not_leave_their_process():
    """PyTorch's own error comes in a thread of the worker, and the main process waits for ever."""
    context = torch.multiprocessing.get_context("fork")
    x = torch.randn(4, 6)
    queue = context.Queue()
    for tensor in (x.to(DEVICE), x.to(DEVICE)[1:], torch.nn.Parameter(x.to(DEVICE)), torch.empty(0, device=DEVICE)):
        with pytest.raises(RuntimeError, match=r"cannot go to another process.*send tensor\.cpu\(\)"):
            ForkingPickler.dumps(tensor)
        queue.put(tensor)
        with pytest.raises(RuntimeError, match="cannot go to another process"):
            queue.get(timeout=30)
    queue.put(x)
    assert torch.equal(queue.get(timeout=30), x)
    data = torch.utils.data.TensorDataset(x.to(DEVICE))
    loader = torch.utils.data.DataLoader(data, num_workers=1, timeout=30, multiprocessing_context=context)
    with pytest.raises(RuntimeError, match="keep the data on the CPU"):
        next(iter(loader))


def test_training_follows_the_cpu_in_float32():
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
    device, x = copy.deepcopy(model).to(DEVICE), torch.randn(5, 6)
    for m, given in ((model, x), (device, x.to(DEVICE))):
        optimizer = torch.optim.AdamW(m.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            m(given).pow(2).sum().backward()
            optimizer.step()
    for a, b in zip(device.parameters(), model.parameters(), strict=True):
        close(a.detach(), b.detach(), 1e-4)


LAYERS = {
    "lstm": (lambda: torch.nn.LSTM(6, 5), (4, 1, 6)),
    "gru": (lambda: torch.nn.GRU(6, 5), (4, 1, 6)),
    "conv2d": (lambda: torch.nn.Conv2d(3, 4, 3, padding=1), (1, 3, 8, 8)),
    "conv_transpose": (lambda: torch.nn.ConvTranspose2d(3, 2, 2), (1, 3, 4, 4)),
    "batch_norm": (lambda: torch.nn.BatchNorm2d(3).eval(), (1, 3, 4, 4)),
    "group_norm": (lambda: torch.nn.GroupNorm(1, 3), (1, 3, 4, 4)),
    "rms_norm": (lambda: torch.nn.RMSNorm(6), (4, 6)),
    "attention": (lambda: torch.nn.MultiheadAttention(8, 2, batch_first=True).eval(), (1, 5, 8)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("make", "shape"), LAYERS.values(), ids=LAYERS)
def test_layers(make, shape, dtype):
    layer, x = make(), torch.randn(shape)
    device = copy.deepcopy(layer).to(dtype).to(DEVICE)
    arguments = (x, x, x) if isinstance(layer, torch.nn.MultiheadAttention) else (x,)
    with torch.no_grad():
        expected, result = layer(*arguments), device(*(a.to(dtype).to(DEVICE) for a in arguments))
    if isinstance(expected, tuple):
        expected, result = expected[0], result[0]
    softmax_in_16_bit = isinstance(layer, torch.nn.MultiheadAttention)
    close(result, expected, 1e-4 if dtype is torch.float32 and not softmax_in_16_bit else 2e-2)


def test_meta_models_materialise_on_the_device():
    with torch.device("meta"):
        layer = torch.nn.Linear(3, 3)
    assert layer.to_empty(device=DEVICE).weight.device.type == DEVICE
    with torch.device(DEVICE):
        assert torch.zeros(3).device.type == DEVICE
        assert torch.tensor([1.0, 2.0]).sum().item() == 3.0


def test_generators_of_the_device_give_the_hosts_numbers():
    generator = torch.Generator(device=DEVICE).manual_seed(7)
    first = torch.randn(3, device=DEVICE, generator=generator).cpu()
    assert torch.equal(first, torch.randn(3, generator=torch.Generator().manual_seed(7)))
    torch.manual_seed(3)
    a = torch.rand(2, device=DEVICE).cpu()
    torch.spyre.manual_seed(3)
    assert torch.equal(torch.rand(2, device=DEVICE).cpu(), a)
    assert isinstance(torch.default_generator, torch.Generator)
    with pytest.raises(TypeError):
        torch.Generator(device=DEVICE, nonsense=1)


OTHER_INDEX = {
    "to": lambda: torch.ones(2).to("spyre:1"),
    "to from the device": lambda: torch.ones(2).to(DEVICE).to("spyre:1"),
    "empty": lambda: torch.empty(2, device="spyre:1"),
    "tensor": lambda: torch.tensor([1], device="spyre:1"),
    "arange": lambda: torch.arange(3, device="spyre:1"),
    "randn": lambda: torch.randn(3, device="spyre:1"),
    "module": lambda: torch.nn.Linear(2, 2).to("spyre:1"),
    "storage": lambda: torch.UntypedStorage(3, device="spyre:1"),
    "generator": lambda: torch.Generator("spyre:1"),
    "set_device": lambda: torch.spyre.set_device(1),
    "zeros_like": lambda: torch.zeros_like(torch.ones(2), device="spyre:1"),
}


@pytest.mark.parametrize("use", OTHER_INDEX.values(), ids=OTHER_INDEX)
def test_other_indices_are_refused(use):
    with pytest.raises(RuntimeError, match=r"invalid device spyre:1: a process owns one Spyre card, local index 0"):
        use()


def test_mixed_devices_are_refused_except_for_single_numbers():
    device, host = both(2, 3, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        device + host
    assert (device + torch.tensor(1.0)).device.type == DEVICE


def test_writing_through_a_view_of_another_dtype_is_refused():
    x = torch.ones(4, dtype=torch.float16).to(DEVICE)
    assert x.view(torch.int16).cpu().tolist() == [0x3C00] * 4
    with pytest.raises(RuntimeError, match="writes through a view of another dtype"):
        x.view(torch.int16).add_(1)


def test_storages_by_device_name_do_not_end_the_process():
    storage = torch.UntypedStorage(16, device=DEVICE)
    assert (storage.device.type, storage.nbytes(), storage.cpu().tolist()) == (DEVICE, 16, [0] * 16)
    assert storage.new().nbytes() == 0
    storage.fill_(1)
    assert storage.tolist() == [1] * 16
    with pytest.raises(RuntimeError):
        storage.resize_(32)
    with pytest.raises(TypeError):
        torch.ones(2, device=DEVICE).numpy()


def test_int64_is_narrowed():
    x = torch.tensor([2**31, 5]).to(DEVICE)
    assert x.cpu().tolist() == [-(2**31), 5]


def test_memory_is_accounted_in_whole_sticks_and_released():
    gc.collect()
    before = torch.spyre.memory_allocated()
    x = torch.ones(3, 65, dtype=torch.float16).to(DEVICE)
    y = x[1:]
    assert torch.spyre.memory_allocated() - before == 3 * 2 * 128
    del x
    assert torch.spyre.memory_allocated() - before == 3 * 2 * 128
    del y
    assert torch.spyre.memory_allocated() == before
    assert torch.spyre.max_memory_allocated() >= before + 768
    with pytest.raises(torch.OutOfMemoryError, match="one segment holds"):
        memory.ACCOUNTING.charge((16 << 30) + 1)
    with (
        spyre_emulator.using(device_memory=before + 1024),
        pytest.raises(torch.OutOfMemoryError, match="out of memory"),
    ):
        torch.empty(64, 64, dtype=torch.float16, device=DEVICE)


def test_the_module_tells_about_the_card():
    with spyre_emulator.using(sencores=8):
        assert torch.spyre.get_device_properties().multi_processor_count == 8
    assert (torch.spyre.device_count(), torch.spyre.current_device(), torch.spyre.is_available()) == (1, 0, True)
    assert torch.spyre.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    stream = torch.spyre.Stream(priority=-1)
    assert 33 <= stream.stream_id <= 64
    with torch.spyre.stream(stream):
        assert torch.spyre.current_stream() == stream
    assert torch.spyre.current_stream().stream_id == 0


def index(*values):
    return torch.tensor(values, device=DEVICE)


@pytest.mark.parametrize(("name", "where"), [("index_copy", (2,)), ("scatter", ((0,) * 6,))])
def test_out_forms_leave_their_operands_alone(name, where):
    device, host = both(4, 6)
    out = torch.zeros_like(device)
    getattr(torch, name)(device, 0, index(*where), device[1:2], out=out)
    close(out, getattr(torch, name)(host, 0, index(*where).cpu(), host[1:2]))
    close(device, host)


def test_an_out_tensor_of_another_shape_is_resized():
    device, host = both(4, 6)
    out = torch.empty(3, dtype=torch.float16, device=DEVICE)
    with pytest.warns(UserWarning, match="was resized since it had shape"):
        torch.mul(device, 2, out=out)
    close(out, host * 2)


def test_results_follow_the_schema_where_more_is_written():
    x, ones, mean = both(2, 3, 4)[0], torch.ones(3, device=DEVICE).half(), torch.zeros(3, device=DEVICE).half()
    outs = {n: torch.empty(0, device=DEVICE) for n in ("save_mean", "save_invstd")}
    outs["out"] = torch.empty(0, dtype=torch.float16, device=DEVICE)
    results = torch.ops.aten._native_batch_norm_legit.out(
        x, ones, mean, mean.clone(), ones.clone(), True, 0.1, 1e-5, **outs
    )
    assert [r.shape for r in results] == [(2, 3, 4), (3,), (3,)]


F = torch.nn.functional
REFUSED = {
    "a broader operand in place": (lambda x: x[0].add_(x), "doesn't match the broadcast shape"),
    "a host tensor as target": (lambda x: torch.ones(4, 6).half().add_(x), "same device"),
    "layer norm of another width": (lambda x: F.layer_norm(x, (5,)), "normalized_shape"),
    "RMSNorm of another width": (lambda x: F.rms_norm(x, (5,)), "normalized_shape"),
    "RMSNorm weight": (lambda x: F.rms_norm(x, (6,), x[0, :5]), "weight"),
    "mm": (lambda x: x @ x.t().float(), "same dtype"),
    "linear": (lambda x: F.linear(x, x.float()), "same dtype"),
    "bfloat16": (lambda x: x @ x.t().bfloat16(), "same dtype"),
    "addmm": (lambda x: torch.addmm(x[:, :1].float(), x, x.t()), "dtype"),
    "conv": (lambda x: F.conv1d(x, x[None, :, :2].float()), "same|type"),
    "index_copy_": (lambda x: x.index_copy_(0, index(0), x[:1].float()), "same dtype"),
    "index_put_": (lambda x: x.index_put_((index(0),), x[:1].float()), "dtypes match"),
    "attention": (
        lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None].float(), x[None, None]),
        "same dtype",
    ),
    "attention mask": (
        lambda x: F.scaled_dot_product_attention(*[x[None, None]] * 3, x[:, :4].bfloat16()),
        "attn_mask dtype",
    ),
    "complex halves": (lambda x: torch.view_as_complex(x.view(4, 3, 2)), "convert the tensor to float32"),
    "sparse": (lambda x: x.to_sparse(), "sparse_coo, which the device has not"),
    "quantized": (lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8), "a quantized tensor"),
}


@pytest.mark.parametrize(("use", "message"), REFUSED.values(), ids=REFUSED)
def test_what_pytorch_refuses_is_refused_although_shadows_would_do(use, message):
    with pytest.raises((RuntimeError, NotImplementedError), match=message):
        use(both(4, 6)[0])


def test_a_compiled_matmul_of_mixed_dtypes_is_refused():
    device, _ = both(4, 6)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="same dtype"):
        torch.compile(lambda a, b: a @ b)(device, device.t().float())


def test_a_failed_call_does_not_change_later_dtypes():
    device, _ = both(3, 4)
    with pytest.raises(RuntimeError):
        torch.atan2(device, torch.ones(5, 7, device=DEVICE))
    assert torch.atan2(device, torch.ones(3, 4, device=DEVICE)).dtype is torch.float32
    with pytest.raises(IndexError):
        device.prod(7, dtype=torch.float32)
    assert device.prod(1, dtype=torch.float32).dtype is torch.float32


@pytest.mark.parametrize("options", [{"is_causal": True}, {"scale": -0.3}, {"scale": 0.0}])
def test_attention_with_mask_and(options):
    device, host = both(1, 2, 70, 8)
    mask = torch.randn(70, 70).bfloat16()
    attention = torch.nn.functional.scaled_dot_product_attention
    close(attention(*[device] * 3, mask.half().to(DEVICE), **options), attention(*[host] * 3, mask.float(), **options))


def test_complex_views_of_float32():
    device, host = both(4, 6, dtype=torch.float32)

    def rotated(x):
        return torch.view_as_real(torch.view_as_complex(x.view(4, 3, 2)) * torch.view_as_complex(x[:1].view(1, 3, 2)))

    close(rotated(device), rotated(host), 1e-5)


def test_moving_a_module_keeps_its_parameters_and_their_ties():
    model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    parameter = model[0].weight
    model.half().to(DEVICE)
    assert model[0].weight is model[1].weight is parameter
    assert parameter.device.type == DEVICE
    assert model.cpu()[1].weight is parameter


NORMS = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_results_lie_as_pytorch_lays_them(norm):
    device, host = both(2, 6, 4)
    assert norm(device.transpose(1, 2)).stride() == norm(host.transpose(1, 2)).stride()

    def flattened(x):
        return norm(x.transpose(1, 2)).view(8, 6) * 2

    torch._dynamo.reset()
    close(torch.compile(flattened)(device), flattened(host))


def test_resizing_to_the_same_shape_keeps_the_values_in_place():
    device, host = both(4, 6)
    close(device.t().resize_as_(torch.empty(6, 4, device=DEVICE)), host.t())


def test_forward_mode_gradients():
    layer, x = torch.nn.Linear(4, 2), torch.randn(3, 4)
    device = copy.deepcopy(layer).to(DEVICE)
    _, tangent = torch.func.jvp(device, (x.to(DEVICE),), (x.to(DEVICE),))
    close(tangent.detach(), torch.func.jvp(layer, (x,), (x,))[1].detach(), 1e-5)


def test_channel_dropout():
    dropped = torch.nn.functional.dropout2d(torch.ones(1, 64, 2, 2, device=DEVICE).half(), 0.5, training=True).cpu()
    assert sorted(dropped.unique().tolist()) == [0.0, 2.0]
