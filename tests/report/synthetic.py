"""Runs made from a seed: realistic, of any size, some with names and texts that attack a report."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from harness.records import (
    Attempt,
    Case,
    CaseResult,
    Cause,
    Checkpoint,
    Comparison,
    CompileFacts,
    DeviceUse,
    Divergence,
    Environment,
    Expectation,
    FileFact,
    Finding,
    HubSource,
    Inputs,
    Localization,
    LogitNumbers,
    Mode,
    ModuleError,
    ModuleEvidence,
    Observation,
    OpError,
    OpState,
    OpUse,
    Outcome,
    OutcomeKind,
    OutputComparison,
    Package,
    PairNumbers,
    Role,
    Run,
    Shape,
    Stage,
    Status,
    Task,
    TensorSpec,
    Tolerance,
    Verdict,
)
from harness.report.inputs import ReportRun

START = datetime(2026, 11, 1, 3, 0, tzinfo=UTC)
CONFIGURATIONS = (
    ("spyre", Mode.EAGER, "float16", None),
    ("spyre", Mode.COMPILED, "float16", None),
    ("spyre", Mode.COMPILED, "float16", "b1s64"),
    ("spyre", Mode.COMPILED, "bfloat16", None),
)
FAMILIES = ("granite", "smollm", "qwen", "minilm", "bge", "albert")
TASK_OF = {
    "minilm": Task.EMBEDDING,
    "bge": Task.EMBEDDING,
    "albert": Task.MASKED_LM,
}
REPLACED_BY = {
    Task.CAUSAL_LM: {
        "aten._scaled_dot_product_fused_attention_overrideable.default": "decomposed",
        "aten.silu.default": "custom",
    },
    Task.EMBEDDING: {"aten.native_layer_norm.default": "decomposed", "aten.gelu.default": "custom"},
    Task.MASKED_LM: {},
}
HOSTILE = (
    '<img src=x onerror="window.pwned=1">',
    "</script><script>window.pwned=1</script>",
    "<Tensor at 0x7f3a>",
    "quotes \" ' ` and & ampersand",
    "BaNaNa-Infinity",
    "ünïcödé-模型-🔥",
    "long-" + "x" * 200,
    "\u202egpj.exe",
    "=HYPERLINK(1)",
    "../../etc/passwd",
)
HOSTILE_TEXT = "\x1b[31mred\x1b[0m \x00 \x12 \ufffe <script>window.pwned=1</script> | `x` ]]>"
NOT_FINITE = {19: math.nan, 23: math.inf}
"""Error ratios of two failing cases among the hostile names, by index."""
OPS = (
    "aten.mm.default",
    "aten.addmm.default",
    "aten.bmm.default",
    "aten._softmax.default",
    "aten.mul.Tensor",
    "aten.add.Tensor",
    "aten.rsqrt.default",
    "aten.silu.default",
    "aten.embedding.default",
    "aten.sin.default",
    "aten.cos.default",
    "aten.cumsum.default",
    "aten.native_layer_norm.default",
    "aten.gelu.default",
)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """How large the synthetic history is."""

    models: int = 8
    runs: int = 3
    configurations: int = 4
    seed: int = 7
    hostile: bool = False
    missing: int = 0
    """Planned cases of the newest run without a result."""
    all_pass: bool = False


def model_names(spec: Spec) -> list[tuple[str, str]]:
    """(name, family) of each model; hostile ones first where asked for."""
    plain = [(f"{FAMILIES[i % 6]}-{1 + i // 6}.{i % 3}-{(i * 7) % 70}b", FAMILIES[i % 6]) for i in range(spec.models)]
    hostile = [(name, "granite") for name in HOSTILE] if spec.hostile else []
    return (hostile + plain)[: spec.models] if not spec.hostile else hostile + plain


def environment(night: int) -> Environment:
    """The environment of night `night`; torch moves on at night 2."""
    return Environment(
        python="3.11.9",
        platform="Linux-6.1-x86_64",
        machine="x86_64",
        cpu="AMD EPYC 7B13",
        cores=2,
        memory=25 * 10**9,
        packages=(
            Package(name="torch", version="2.13.0" if night < 2 else "2.13.1"),
            Package(name="transformers", version="5.24.0"),
        ),
        harness_version="2026.11.0",
        commit="0123456789abcdef0123456789abcdef01234567",
        device={"kind": "emulator", "version": "2026.11.0"},
        variables={"HF_HOME": "/home/ci/.cache/huggingface", "OMP_NUM_THREADS": "1"},
        workers=2,
    )


def cases(spec: Spec) -> Iterator[Case]:
    """The plan: each model on each configuration."""
    for name, family in model_names(spec):
        task = TASK_OF.get(family, Task.CAUSAL_LM)
        for target, mode, dtype, shape in CONFIGURATIONS[: spec.configurations]:
            tail = f"-{shape}" if shape else ""
            yield Case(
                id=f"{name}/{task}/{target}-{mode}-{dtype}{tail}",
                model=name,
                task=task,
                target=target,
                mode=mode,
                dtype=dtype,
                shape=Shape.parse(shape) if shape else None,
                source=HubSource(hub=f"example/{family}", revision="5" * 40),
                inputs=Inputs(texts=("The capital of France is",), decode_steps=4),
                parameters=135_000_000,
                family=family,
                licence="Apache-2.0",
            )


def runs(spec: Spec) -> list[ReportRun]:
    """The runs, oldest first; results are made while they are read."""
    plan = tuple(cases(spec))
    return [_run(spec, plan, night) for night in range(spec.runs)]


def _run(spec: Spec, plan: tuple[Case, ...], night: int) -> ReportRun:
    started = START + timedelta(days=night)
    last = night == spec.runs - 1
    observed = plan[: len(plan) - spec.missing] if last else plan
    statuses = [_status(spec, index, night) for index in range(len(observed))]
    run = Run(
        run_id=f"{started:%Y%m%dT%H%M%SZ}-{night:06x}",
        started=started,
        finished=started + timedelta(hours=1),
        profile="nightly",
        selection="--profile nightly",
        environment=environment(night),
        plan=plan,
        totals=dict(Counter(statuses)),
        exit_status=0 if set(statuses) <= {Status.PASS, Status.XFAIL, Status.SKIP} else 1,
    )
    return ReportRun(run=run, results=Results(spec, observed, tuple(statuses), night))


@dataclass(frozen=True)
class Results:
    """Results that are made anew each time they are iterated: no memory, same values."""

    spec: Spec
    observed: tuple[Case, ...]
    statuses: tuple[Status, ...]
    night: int

    def __iter__(self) -> Iterator[CaseResult]:
        for index, (case, status) in enumerate(zip(self.observed, self.statuses, strict=True)):
            yield result(case, status, self.spec, index, self.night)


def _status(spec: Spec, index: int, night: int) -> Status:
    """Most cases keep one status; a few regress, some flake, one in twenty is known to fail."""
    if spec.all_pass:
        return Status.PASS
    if spec.hostile and index in NOT_FINITE:
        return Status.FAIL
    generator = random.Random(f"{spec.seed}-{index}")
    draw = generator.random()
    if draw < 0.04:
        return Status.FAIL if night >= spec.runs - 1 - generator.randrange(3) else Status.PASS
    if draw < 0.06:
        return random.Random(f"{spec.seed}-{index}-{night}").choice((Status.PASS, Status.FAIL))
    fixed = (
        (0.10, Status.XFAIL),
        (0.12, Status.SKIP),
        (0.13, Status.NOTRUN),
        (0.14, Status.ERROR),
        (0.15, Status.XPASS),
    )
    return next((status for bound, status in fixed if draw < bound), Status.PASS)


_OUTCOMES = {
    Status.SKIP: (OutcomeKind.DOES_NOT_FIT, "Needs 32.8 GB in float32; this machine has 25 GB."),
    Status.NOTRUN: (OutcomeKind.UNAVAILABLE, "The Hub did not answer within 30 s; see HF_ENDPOINT."),
    Status.ERROR: (OutcomeKind.NOT_EXERCISED, "No op ran on the device; the check proves nothing."),
}
_CRASHED = Outcome(kind=OutcomeKind.CRASH, stage=Stage.RUN, message="The process died by SIGBUS.", signal="SIGBUS")
RELAXED = "the norms of this family compute in 16 bit on the device; see the tolerance study"
_CRASHES = (
    (OutcomeKind.TIMEOUT, "No end within 900 s.", None),
    (OutcomeKind.CRASH, "The process died by SIGSEGV.", "SIGSEGV"),
    (OutcomeKind.UNSUPPORTED_OP, "aten.cumsum.default has no kernel for int64 on spyre.", None),
    (OutcomeKind.COMPLETED, "", None),
)


def result(case: Case, status: Status, spec: Spec, index: int, night: int) -> CaseResult:
    """One line of cases.jsonl, with evidence that agrees with its status."""
    generator = random.Random(f"{spec.seed}-{index}-{night}")
    started = START + timedelta(days=night, seconds=index)
    outcome = _outcome(status, index, spec.hostile and index % 3 == 0)
    measured = outcome.kind is OutcomeKind.COMPLETED
    ratio = generator.uniform(1.2, 4.0) if status is not Status.FAIL else generator.uniform(30, 90)
    if spec.hostile and index in NOT_FINITE:
        ratio = NOT_FINITE[index]
    comparison = _comparison(case, ratio, generator, index, spec.hostile) if measured else None
    seconds = generator.uniform(4, 60)
    relaxed = measured and index % 11 == 5
    if status is Status.XFAIL:
        case = case.model_copy(update={"expectation": _expectation()})
    if relaxed:
        case = case.model_copy(update={"tolerance": Tolerance(error_ratio=8, reason=RELAXED)})
    attempts = (Attempt(outcome=outcome, seconds=seconds),)
    if status is Status.PASS and index % 13 == 6:
        attempts = (Attempt(outcome=_CRASHED, seconds=seconds / 3), *attempts)
    return CaseResult(
        case=case,
        outcome=outcome,
        verdict=_verdict(status, outcome, ratio, comparison, relaxed=relaxed),
        checkpoint=_checkpoint(case) if measured else None,
        observations=_observations(case, generator, index) if measured else {},
        comparison=comparison,
        localization=_localization(case, ratio) if measured and status is Status.FAIL else None,
        started=started,
        finished=started + timedelta(seconds=seconds),
        seconds={Stage.LOAD: 1.5, Stage.COMPILE: seconds * 0.6, Stage.RUN: seconds * 0.3} if measured else {},
        attempts=attempts,
        worker="w1",
    )


def _outcome(status: Status, index: int, hostile: bool) -> Outcome:
    detail = (
        HOSTILE_TEXT + '\n  File "/home/ci/venv/lib/python3.11/site-packages/torch/x.py", line 3' if hostile else ""
    )
    if status in _OUTCOMES:
        kind, message = _OUTCOMES[status]
        return Outcome(kind=kind, stage=Stage.RESOLVE, message=message, detail=detail)
    if status is Status.FAIL:
        kind, message, signal = _CRASHES[index % 4]
        stage = Stage.COMPARE if kind is OutcomeKind.COMPLETED else Stage.RUN
        return Outcome(kind=kind, stage=stage, message=message, signal=signal, detail=detail)
    return Outcome(kind=OutcomeKind.COMPLETED, stage=Stage.COMPARE)


def _expectation() -> Expectation:
    return Expectation(
        outcome="outside_rule",
        reason="softmax loses precision over 4096 columns",
        issue="https://github.com/torch-spyre/torch-spyre/issues/1781",
    )


def _verdict(
    status: Status, outcome: Outcome, ratio: float, comparison: Comparison | None, *, relaxed: bool
) -> Verdict:
    within = status is not Status.FAIL
    findings = ()
    if comparison:
        findings = (
            Finding(metric="error_ratio", output="logits", value=ratio, limit=8, within=within, where="step 3"),
            Finding(metric="cosine", output="logits", value=0.99991, limit=0.99, within=True),
        )
    sentence = outcome.message or (
        f"Error {ratio:.1f} times the float16 control's ({'limit' if within else 'above the limit'} 8), "
        "worst at step 3; top token agrees at 58 of 59 positions, one near tie."
    )
    return Verdict(
        status=status,
        sentence=sentence,
        flags=(("near_tie", "relaxed") if relaxed else ("near_tie",)) if comparison else (),
        findings=findings,
        tolerance=Tolerance(error_ratio=8, relative_l2=0.05, cosine=0.99, kl=0.01),
        tensors=1 if comparison else 0,
        elements=comparison.elements if comparison else 0,
    )


def _checkpoint(case: Case) -> Checkpoint:
    return Checkpoint(
        folder="/home/ci/.cache/conformance/secret-folder",
        origin=f"hub:example/{case.family}@{'5' * 40}",
        revision="5" * 40,
        format="safetensors",
        stored_dtype="bfloat16",
        architecture="LlamaForCausalLM",
        model_type="llama",
        parameters=134_515_008,
        files=(FileFact(name="model.safetensors", size=269_060_552, sha256="a" * 64),),
        digest="b" * 64,
    )


def _localization(case: Case, ratio: float) -> Localization:
    names = [f"model.layers.{layer}.{part}" for layer in range(12) for part in ("self_attn.o_proj", "mlp.up_proj")]
    errors = tuple(
        ModuleError(name=name, module=name, part="module", relative_l2=6e-4 * (ratio if at == 3 else 1.4), control=6e-4)
        for at, name in enumerate(names)
    )
    operand = TensorSpec(shape=(59, 576), strides=(576, 1), dtype=case.dtype)
    return Localization(
        case=case.id,
        module=errors[3],
        op=OpError(
            op="aten.mm.default", operands=(operand,), state=OpState.SPYRE_FAILED, relative_l2=0.04, control=4e-4
        ),
        cause=Cause.OP,
        sentence="aten.mm.default in model.layers.1.mlp.up_proj is the first op out of proportion.",
        modules_wrong=1,
        limit=8,
        evidence=ModuleEvidence(errors=errors, forwards=1, compared=len(errors)),
    )


def _pair(error: float) -> PairNumbers:
    return PairNumbers(
        finite_pairs=2_900_000,
        max_abs=error * 40,
        max_abs_index=(0, 3, 1129),
        mean_abs=error / 3,
        relative_l2=error,
        cosine=1 - error**2 / 2,
        pearson=1 - error**2 / 2,
        mismatches=12,
        ulp_median=1.0,
        ulp_p99=9.0,
        ulp_max=310.0,
        abs_quantiles=(error / 4, error, error * 3, error * 9),
        scale=1.0001,
        offset=-0.0002,
        minimum_tolerance=error * 3,
    )


def _comparison(case: Case, ratio: float, generator: random.Random, index: int, hostile: bool) -> Comparison:
    control = generator.uniform(4e-4, 9e-4)
    candidate = _pair(control * ratio)
    if hostile and index % 7 == 3:
        candidate = candidate.model_copy(update={"relative_l2": math.nan, "max_abs": math.inf})
    if case.task is not Task.CAUSAL_LM:
        output = OutputComparison(
            name="pooled", shape=(4, 384), elements=1536, candidate=candidate, control=_pair(control)
        )
        return Comparison(outputs=(output,))
    output = OutputComparison(
        name="logits",
        shape=(1, 59, 49152),
        elements=2_900_000,
        candidate=candidate,
        control=_pair(control),
        candidate_logits=_logits(control * ratio, generator),
        control_logits=_logits(control, generator),
    )
    return Comparison(outputs=(output,))


def _logits(error: float, generator: random.Random) -> LogitNumbers:
    tie = Divergence(
        position=(0, 17), reference_token=338, other_token=260, reference_margin=0.002, error_at_pair=0.004, ulp=0.0156
    )
    return LogitNumbers(
        positions=59,
        kl_mean=error**2,
        kl_max=error**2 * 20,
        kl_max_position=(0, 17),
        top1_agreements=58,
        top5_overlap=0.98,
        margin_median=2.1,
        margin_min=0.002,
        divergences=(tie,),
        divergent=1,
        relative_l2_by_step=tuple(error * generator.uniform(0.5, 1.5) for _ in range(59)),
        worst_step=3,
    )


def _observations(case: Case, generator: random.Random, index: int) -> dict[Role, Observation]:
    states = list(OpState)
    ops = tuple(
        OpUse(
            op=op,
            state=OpState.SPYRE_ENABLED if generator.random() < 0.85 else generator.choice(states),
            count=generator.randrange(1, 400),
            operands=(TensorSpec(shape=(1, 59, 576), strides=(33984, 576, 1), dtype=case.dtype),),
        )
        for op in OPS[: 8 + index % 7]
    )
    fallbacks = sum(use.count for use in ops if use.state is OpState.CPU_FALLBACK)
    device = DeviceUse(
        ops_on_device=sum(use.count for use in ops if use.state is OpState.SPYRE_ENABLED),
        fallbacks=fallbacks,
        ops=ops,
        compiled=CompileFacts(graphs=2, plan_steps=900, native_steps=890, fallback_steps=10, seconds=14.2)
        if case.mode is Mode.COMPILED
        else None,
        peak_memory=412_000_000,
        configuration={"rounding": "dlfloat16"},
        replaced=None if case.family == "smollm" else REPLACED_BY[case.task],
    )
    common = {"threads": 1, "weights_digest": "c" * 64, "outputs": {}}
    return {
        Role.REFERENCE: Observation(
            role=Role.REFERENCE, target="cpu", dtype="float32", mode=Mode.EAGER, cached=True, **common
        ),
        Role.CONTROL: Observation(role=Role.CONTROL, target="cpu", dtype=case.dtype, mode=Mode.EAGER, **common),
        Role.CANDIDATE: Observation(
            role=Role.CANDIDATE,
            target=case.target,
            dtype=case.dtype,
            mode=case.mode,
            peak_memory=1_800_000_000,
            device=device,
            **common,
        ),
    }
