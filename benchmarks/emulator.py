# ruff: noqa: T201 - the report is what it prints
"""Times the emulated device against CPU float32 in one run, paired, on one thread.

    python benchmarks/emulator.py [rounding] [forward] [memory]

``rounding``: the C kernel against the torch form on 10^7 random bit patterns and ties: the same bits, and how fast.

``forward``: a random model of SmolLM2-135M's shape; prefill of 64 tokens and decode steps through a static cache.
``memory``: host memory per parameter and prefill time with compressed weights, on a random model of 1.1 billion.
"""

from __future__ import annotations

import copy
import functools
import gc
import multiprocessing
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

import spyre_emulator
from spyre_emulator import numerics

warnings.simplefilter("ignore")
SMALL = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}
BILLION = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
}
PROMPT, DECODED, ROUNDS = 64, 64, 7


def seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def paired(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds per call, the calls taking turns so that load on the machine meets all of them."""
    measured: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            measured[name].append(seconds(call))
    return measured


def show(title: str, measured: dict[str, list[float]], base: str) -> None:
    reference = measured[base]
    for name, times in measured.items():
        ratios = [t / r for t, r in zip(times, reference, strict=True)]
        best, pairs = min(times) / min(reference), statistics.median(ratios)
        print(f"{title:24s} {name:10s} {min(times):8.4f} s  x{best:5.2f} (median of pairs x{pairs:5.2f})")


def decoder(model: Any, call: Any, device: str) -> Callable[[], Any]:
    """A call that decodes one more token through a static cache that a prompt has filled."""
    cache = StaticCache(config=model.config, max_cache_len=PROMPT + DECODED + 8)
    ids = torch.arange(PROMPT, device=device)[None]
    call(ids, past_key_values=cache, cache_position=torch.arange(PROMPT, device=device))
    position = PROMPT
    token = torch.tensor([[7]], device=device)

    def step() -> None:
        nonlocal position
        call(token, past_key_values=cache, cache_position=torch.tensor([position], device=device))
        position += 1

    step()
    return step


def forward() -> None:
    host = LlamaForCausalLM(LlamaConfig(**SMALL)).eval()
    device = copy.deepcopy(host).half().to("spyre")
    compiled = torch.compile(device)
    ids = torch.arange(PROMPT)[None]
    on_device = ids.to("spyre")
    calls = {
        "cpu": lambda: host(ids, use_cache=False),
        "eager": lambda: device(on_device, use_cache=False),
        "compiled": lambda: compiled(on_device, use_cache=False),
    }
    paired(calls, 1)
    show("prefill of 64 tokens", paired(calls, ROUNDS), "cpu")
    with spyre_emulator.record() as recording:
        steps = {
            "cpu": decoder(host, host, "cpu"),
            "eager": decoder(device, device, "spyre"),
            "compiled": decoder(device, compiled, "spyre"),
        }
        show("decode step", paired(steps, DECODED), "cpu")
    print(f"{DECODED} tokens decoded: {recording.compiled.graphs} plans, one of them for the prompt")

    def recorded() -> None:
        with spyre_emulator.record():
            compiled(on_device, use_cache=False)

    plain = {"plain": calls["compiled"], "recorded": recorded}
    show("recording", paired(plain, ROUNDS), "plain")


def resident() -> int:
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()  # noqa: PTH123


def placed(compressed: bool) -> tuple[Any, float]:
    """A model of random weights on the device, built and moved a layer at a time, and the bytes a parameter it took."""
    gc.collect()
    before = resident()
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**BILLION)).eval().half()
    with spyre_emulator.using(compressed_weights=compressed):
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                values = torch.randn(parameter.shape, dtype=torch.float16) * 0.02
                module.register_parameter(name, torch.nn.Parameter(values.to("spyre"), requires_grad=False))
        rotary = type(model.model.rotary_emb)(model.config)
        model.model.rotary_emb = rotary.to("spyre")
        count = sum(p.numel() for p in model.parameters())
        gc.collect()
        return model, (resident() - before) / count


def bytes_per_parameter(compressed: bool) -> float:
    """What the large model takes of host memory, in this process."""
    torch.set_num_threads(1)
    model, taken = placed(compressed)
    del model
    return taken


def memory() -> None:
    """Bytes in a process of its own each, since freed memory is used again; then both side by side, taking turns."""
    ids = torch.arange(PROMPT)[None].to("spyre")
    calls: dict[str, Callable[[], Any]] = {}
    for name, compressed in (("shadow", False), ("codes", True)):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            print(f"{name:7s} {alone.submit(bytes_per_parameter, compressed).result():.2f} bytes a parameter")
        calls[name] = functools.partial(placed(compressed)[0], ids, use_cache=False)
    paired(calls, 1)
    show("prefill of 64 tokens", paired(calls, ROUNDS), "shadow")


def rounding() -> None:
    bits = torch.randint(-(2**31), 2**31, (5_000_000,), dtype=torch.int64).to(torch.int32)
    ties = (torch.randint(-(2**17), 2**17, (5_000_000,), dtype=torch.int64) * 2**14 + 2**13).to(torch.int32)
    patterns = torch.cat([bits, ties]).view(torch.float32)
    for name, rule in numerics.RULES.items():
        fast, slow = patterns.clone(), patterns.clone()
        in_c = seconds(lambda values=fast, rule=rule: numerics.round_(values, rule))
        with spyre_emulator.using(native_kernel=False):
            in_torch = seconds(lambda values=slow, rule=rule: numerics.round_(values, rule))
        same = torch.equal(fast.view(torch.int32), slow.view(torch.int32))
        print(f"{name:13s} {'same bits' if same else 'DIFFERENT BITS'}, C x{in_torch / in_c:.0f} faster than torch")


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, {spyre_emulator.configuration()['rounding_kernel']} kernel")
    with torch.no_grad():
        for name in names or ["forward"]:
            {"rounding": rounding, "forward": forward, "memory": memory}[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
