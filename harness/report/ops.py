"""Ops of the newest run over all models: four states, variants that work and fail, what blocks whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.records import CaseResult, OpState, OpUse, Role
from harness.report.details import cleaned

VARIANTS = 60
"""Variants kept per op and state for the page; the run's ops.parquet holds all."""
COSTLY = 20
STATES: tuple[OpState, ...] = (
    OpState.SPYRE_ENABLED,
    OpState.CPU_FALLBACK,
    OpState.SPYRE_FAILED,
    OpState.NOT_IMPLEMENTED,
)
_CODE = {state: code for code, state in enumerate(STATES)}
_Operands = tuple[tuple[tuple[int, ...], tuple[int, ...], str], ...]


class OpTable:
    """Collects op use case by case.

    A case's ops are a set of (op, state) codes; models of one architecture share their sets, so each
    set is kept once and a case holds its number.
    """

    def __init__(self) -> None:
        self._ops: dict[str, int] = {}
        self._calls: list[list[int]] = []
        self._variants: list[list[dict[_Operands, list[Any]]]] = []
        self._sets: dict[frozenset[int], int] = {}
        self._set_of: dict[str, int] = {}
        self._costs: list[tuple[int, int, int, str]] = []

    def add(self, result: CaseResult) -> None:
        """Take in one case's op table, if its candidate left one."""
        candidate = result.observations.get(Role.CANDIDATE)
        if not candidate or not candidate.device:
            return
        codes = frozenset(self._take(use, result.case.id) for use in candidate.device.ops)
        self._set_of[result.case.id] = self._sets.setdefault(codes, len(self._sets))
        compiled = candidate.device.compiled
        if compiled and (compiled.padded_bytes or compiled.restickifies or compiled.fallback_steps):
            cost = (compiled.padded_bytes, compiled.restickifies, compiled.fallback_steps, result.case.id)
            self._costs.append(cost)

    def _take(self, use: OpUse, case_id: str) -> int:
        op = self._ops.setdefault(use.op, len(self._ops))
        if op == len(self._calls):
            self._calls.append([0] * len(STATES))
            self._variants.append([{} for _ in STATES])
        state = _CODE[use.state]
        self._calls[op][state] += use.count
        known = self._variants[op][state]
        operands = tuple((one.shape, one.strides, one.dtype) for one in use.operands)
        variant = known.get(operands)
        if variant:
            variant[0] += use.count
            variant[1] += 1
        elif len(known) < VARIANTS:
            known[operands] = [use.count, 1, case_id]
        return op * len(STATES) + state

    def index(self, case_ids: Sequence[str]) -> dict[str, Any]:
        """``ops``: names; ``sets``: codes ``4 * op + state``; ``case``: each case's set, -1 without one."""
        place = {case_id: at for at, case_id in enumerate(case_ids)}
        costs = sorted(self._costs, key=lambda cost: cost[:3], reverse=True)[:COSTLY]
        return {
            "states": [state.value for state in STATES],
            "ops": cleaned(list(self._ops)),
            "calls": self._calls,
            "sets": [sorted(codes) for codes in self._sets],
            "case": [self._set_of.get(case_id, -1) for case_id in case_ids],
            "padding": [[*cost[:3], place[cost[3]]] for cost in costs],
        }

    def variants(self, case_ids: Sequence[str]) -> list[Any]:
        """For each op its variants ``[state, calls, cases, example case, [[shape, strides, dtype], ...]]``."""
        place = {case_id: at for at, case_id in enumerate(case_ids)}
        return [
            [
                [state, calls, cases, place[example], operands]
                for state, known in enumerate(states)
                for operands, (calls, cases, example) in known.items()
            ]
            for states in self._variants
        ]
