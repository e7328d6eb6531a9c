"""Two processes with a card each: collectives as published, refusals, and a Hugging Face model in tensor parallel."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.distributed import DistributedConfig

import spyre_emulator  # noqa: F401 - registers the device
from spyre_emulator import faults
from spyre_emulator.distributed import SpyreCCL, SpyreCCLNotSupportedException

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*falling back to cpu", "ignore:Backend Spyre does not support int64"),
    pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo"),
]
HALF = torch.float16
Scenario = Callable[[int], Any]


def _rank(rank: int, size: int, meeting: str, scenario: Scenario, results: Any) -> None:
    os.environ.update(LOCAL_WORLD_SIZE=str(size), LOCAL_RANK=str(rank), RANK=str(rank), WORLD_SIZE=str(size))
    torch.set_num_threads(1)
    try:
        dist.init_process_group("cpu:gloo,spyre:spyreccl", init_method=f"file://{meeting}", rank=rank, world_size=size)
        results.put((rank, scenario(rank), None))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
        raise


def on_two_cards(scenario: Scenario, directory: Path) -> list[Any]:
    """What `scenario` returns in each of two processes."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    meeting = str(directory / "meeting")
    ranks = [context.Process(target=_rank, args=(r, 2, meeting, scenario, results)) for r in range(2)]
    for process in ranks:
        process.start()
    found: dict[int, Any] = {}
    for _ in ranks:
        rank, value, error = results.get(timeout=120)
        assert error is None, f"rank {rank}:\n{error}"
        found[rank] = value
    for process in ranks:
        process.join(timeout=60)
        assert process.exitcode == 0
    return [found[r] for r in range(2)]


def numbers(rank: int) -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 3.0], dtype=HALF).mul(rank + 1).to("spyre")


def listed(*tensors: torch.Tensor) -> list[Any]:
    return [t.cpu().tolist() for t in tensors]


def implemented(rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {"backend": dist.get_backend()}
    x = numbers(rank)
    dist.all_reduce(x)
    found["all_reduce"] = listed(x)
    x = numbers(rank)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    found["all_reduce max"] = listed(x)
    x = numbers(rank)
    dist.broadcast(x, src=1)
    found["broadcast"] = listed(x)
    parts = [torch.zeros(3, dtype=HALF, device="spyre") for _ in range(2)]
    dist.all_gather(parts, numbers(rank))
    found["all_gather"] = listed(*parts)
    parts = [torch.zeros(3, dtype=HALF, device="spyre") for _ in range(2)] if rank == 0 else []
    dist.gather(numbers(rank), parts or None, dst=0)
    found["gather"] = listed(*parts)
    x = numbers(rank)
    dist.reduce(x, dst=0)
    found["reduce"] = listed(x)
    x = numbers(rank)
    if rank == 0:
        dist.send(x, dst=1)
    else:
        dist.recv(x, src=0)
    found["send, recv"] = listed(x)
    host = torch.tensor([float(rank)])
    dist.all_reduce(host)
    found["host"] = host.tolist()
    column = torch.arange(6.0).view(3, 2).to("spyre")[:, rank]
    dist.all_reduce(column)
    found["strided"] = listed(column)
    return found


def test_implemented_collectives(tmp_path: Path) -> None:
    both = on_two_cards(implemented, tmp_path)
    common = {
        "all_reduce": [[3.0, 6.0, 9.0]],
        "all_reduce max": [[2.0, 4.0, 6.0]],
        "broadcast": [[2.0, 4.0, 6.0]],
        "all_gather": [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]],
        "send, recv": [[1.0, 2.0, 3.0]],
        "host": [1.0],
        "strided": [[1.0, 5.0, 9.0]],
    }
    first = {"gather": [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]], "reduce": [[3.0, 6.0, 9.0]]}
    second = {"gather": [], "reduce": [[2.0, 4.0, 6.0]]}
    for found, own in zip(both, (first, second), strict=True):
        assert "spyreccl" in found.pop("backend")
        assert found == common | own


def refusals(rank: int) -> dict[str, str]:
    x, pair = numbers(rank), [numbers(rank), numbers(rank)]
    calls: dict[str, Callable[[], Any]] = {
        "scatter": lambda: dist.scatter(x, pair if rank == 0 else None, src=0),
        "reduce_scatter": lambda: dist.reduce_scatter(x, pair),
        "alltoall": lambda: dist.all_to_all([numbers(rank), numbers(rank)], pair),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.zeros_like(x), x),
        "all_gather_single": lambda: dist.all_gather_single(torch.zeros(6, dtype=HALF, device="spyre"), x),
        "reduce_scatter_single": lambda: dist.reduce_scatter_single(x, torch.zeros(6, dtype=HALF, device="spyre")),
        "allreduce_coalesced": lambda: dist.all_reduce_coalesced(pair),
        "async": lambda: dist.all_reduce(x, async_op=True),
        "bitwise": lambda: dist.all_reduce(x, op=dist.ReduceOp.BXOR),
        "other card": lambda: x.to("spyre:1"),
    }
    texts = {}
    for name, call in calls.items():
        try:
            call()
            texts[name] = "no error"
        except SpyreCCLNotSupportedException as error:
            texts[name] = str(error)
        except RuntimeError as error:
            texts[name] = f"RuntimeError: {error}"
    return texts


def test_refused_collectives(tmp_path: Path) -> None:
    for texts in on_two_cards(refusals, tmp_path):
        assert texts.pop("other card").startswith("RuntimeError: invalid device spyre:1: a process owns one Spyre card")
        assert texts == {
            "scatter": "spyreccl does not support scatter",
            "reduce_scatter": "spyreccl does not support reduce_scatter",
            "alltoall": "spyreccl does not support alltoall",
            "all_to_all_single": "spyreccl does not support alltoall_base",
            "all_gather_single": "spyreccl does not support _allgather_base",
            "reduce_scatter_single": "spyreccl does not support _reduce_scatter_base",
            "allreduce_coalesced": "spyreccl does not support allreduce_coalesced",
            "async": "spyreccl does not support asyncOp in allreduce: collectives block",
            "bitwise": "spyreccl does not support the reduction BXOR",
        }


def received(rank: int) -> dict[str, Any]:
    def broadcast() -> Any:
        x = numbers(rank)
        dist.broadcast(x, src=1)
        return listed(x)

    def all_reduce() -> Any:
        x = numbers(rank)
        dist.all_reduce(x)
        return listed(x)

    with faults("F35"):
        return {"faulty": broadcast(), "near miss": all_reduce(), "rank": rank}


def test_fault_f35_hides_what_broadcast_received(tmp_path: Path) -> None:
    first, second = on_two_cards(received, tmp_path)
    assert first == {"faulty": [[1.0, 2.0, 3.0]], "near miss": [[3.0, 6.0, 9.0]], "rank": 0}
    assert second == {"faulty": [[2.0, 4.0, 6.0]], "near miss": [[3.0, 6.0, 9.0]], "rank": 1}


def compiled_all_reduce(rank: int) -> Any:
    def call(x: torch.Tensor) -> torch.Tensor:
        y = x * 2.0
        dist.all_reduce(y)
        return y + 1.0

    return listed(torch.compile(call, backend="spyre", dynamic=False)(numbers(rank)))


def test_all_reduce_in_a_compiled_graph(tmp_path: Path) -> None:
    assert on_two_cards(compiled_all_reduce, tmp_path) == [[[7.0, 13.0, 19.0]]] * 2


def test_ranks_need_local_world_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    with pytest.raises(RuntimeError, match="LOCAL_WORLD_SIZE is not set"):
        SpyreCCL(dist.FileStore(str(tmp_path / "store"), 1), 0, 1, timedelta(seconds=5))


CONFIG = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
IDS = torch.arange(16)[None] * 7 % 128


def sharded_logits(folder: Path) -> Scenario:
    def logits(rank: int) -> Any:
        # A process sees one card, whose local index is 0; transformers takes the index from here.
        os.environ["LOCAL_RANK"] = "0"
        cards = DistributedConfig(tp_size=2, tp_plan="auto")
        model = AutoModelForCausalLM.from_pretrained(folder, distributed_config=cards, dtype=HALF)
        weight = model.model.layers[0].self_attn.q_proj.weight
        with torch.no_grad():
            eager = model(IDS.to("spyre"), use_cache=False).logits.cpu()
            plan = torch.compile(model, backend="spyre", dynamic=False)
            assert torch.equal(plan(IDS.to("spyre"), use_cache=False).logits.cpu(), eager)
        return str(weight.placements), tuple(weight.to_local().shape), eager.tolist()

    return logits


def test_a_hugging_face_model_on_two_cards_agrees_with_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**CONFIG)).to(HALF).save_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=HALF).to("spyre")
    with torch.no_grad():
        one = model(IDS.to("spyre"), use_cache=False).logits.cpu()
    both = on_two_cards(sharded_logits(tmp_path / "model"), tmp_path)
    assert both[0] == both[1]
    placement, shape, logits = both[0]
    assert (placement, shape) == ("(Shard(dim=0),)", (32, 64))
    two = torch.tensor(logits, dtype=HALF)
    torch.testing.assert_close(two, one, rtol=0.0, atol=2e-3)
    assert not torch.equal(two, one)  # partial sums are rounded on each card before they are added
