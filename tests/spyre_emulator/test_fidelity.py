"""The fidelity table: how rows are judged, that it holds, that it fails when the device is made worse."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from spyre_emulator import fidelity
from spyre_emulator.accumulation import Accumulation, accumulating
from spyre_emulator.faults import AtOperator, Fault, faults, register_fault, unregister_fault
from spyre_emulator.fidelity import __main__ as command
from spyre_emulator.fidelity import accumulations, formats, tolerances
from spyre_emulator.fidelity.figures import Figure, Rule, bound, measured, table, unavailable, within

pytestmark = pytest.mark.filterwarnings("ignore:.*falling back to cpu", "ignore:Backend Spyre does not support int64")


def judged(rule: Rule, published: float, emulated: float, explanation: str = "") -> tuple[str, float | None]:
    figure = Figure(
        id="x", topic="t", quantity="q", published=published, rule=rule, factor=2.0, origin="predicted", source="s",
        measure=lambda: emulated, explanation=explanation,
    )  # fmt: skip
    row = measured(figure)
    return row.status, row.ratio


def test_rules() -> None:
    assert judged("exact", 3.0, 3.0) == ("met", 1.0)
    assert judged("exact", 3.0, 3.1) == ("unexplained", 3.1 / 3.0)
    assert judged("within", 3.0, 6.0) == ("met", 2.0)
    assert judged("within", 3.0, 1.5) == ("met", 0.5)
    assert judged("within", 3.0, 6.1)[0] == "unexplained"
    assert judged("within", 3.0, 6.1, "torch-spyre#1")[0] == "explained"
    assert judged("within", 0.0, 0.0) == ("unexplained", None)
    assert judged("within", 3.0, math.nan)[0] == "unexplained"
    assert judged("at most", 0.1, 0.1) == ("met", 1.0)
    assert judged("at most", 0.1, 0.2)[0] == "unexplained"
    assert judged("at most", 0.1, math.nan)[0] == "unexplained"
    assert judged("at least", 0.99, 0.999)[0] == "met"
    assert judged("at least", 0.99, 0.98)[0] == "unexplained"
    assert judged("exact", 0.0, -0.0) == ("met", None)


def test_a_table_holds_while_all_is_explained_and_enough_is_met() -> None:
    good = [bound(f"good{n}", "t", "q", "at most", 1.0, lambda: 0.5, "s") for n in range(4)]
    explained = within("bad", "t", "q", 1.0, 2.0, lambda: 9.0, "s", explanation="why")
    absent = unavailable("absent", "t", "q", "9/9", "s", "needs a checkpoint")
    assert table([*good, explained, absent]).holds
    assert table([*good, explained, absent]).share_met == 0.8
    assert not table([*good[:3], explained]).holds
    unexplained = within("worse", "t", "q", 1.0, 2.0, lambda: 9.0, "s")
    assert not table(
        [*good, *(bound(f"more{n}", "t", "q", "at most", 1.0, lambda: 0.5, "s") for n in range(4)), unexplained]
    ).holds
    assert [row.figure.id for row in table([*good, unexplained]).unexplained] == ["worse"]
    with pytest.raises(ValueError, match="used twice: \\['good0'\\]"):
        table([good[0], good[0]])


def test_an_empty_table_does_not_hold() -> None:
    assert not table([]).holds


def test_every_figure_is_marked_and_sourced() -> None:
    rows = fidelity.all_figures()
    assert len(rows) > 90
    assert all(figure.source and figure.origin for figure in rows)
    assert all(figure.explanation for figure in rows if figure.measure is None)
    sums = {f.id: f.origin for f in accumulations.sums()}
    assert sums["sum/device"] == "predicted"
    assert {f.origin for f in accumulations.norms() if f.id.endswith("dl16")} == {"fitted"}


def test_the_command_prints_stores_and_succeeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "0 unexplained" in printed
    assert "the table holds" in printed
    stored = json.loads((tmp_path / "fidelity.json").read_text())
    assert stored["holds"] is True
    assert stored["share_met"] >= 0.8
    assert stored["configuration"]["faults"] == ""
    by_id = {row["id"]: row for row in stored["rows"]}
    assert by_id["sum/device"]["emulated"] == pytest.approx(4.0741e-03, rel=1e-3)
    assert by_id["rms/2048/dl16"]["factor"] == 1.5
    page = (tmp_path / "fidelity.md").read_text()
    assert page.startswith("# Fidelity of the emulated Spyre\n\n")
    assert page.count("\n| ") == len(stored["rows"]) + 1


def test_a_worse_device_is_told() -> None:
    with accumulating(sum=Accumulation("dl16", 1, "truncate"), mean=Accumulation("dl16", 1, "truncate")):
        worse = {row.figure.id for row in table(accumulations.figures()).unexplained}
        assert {"sum/device", "rms/2048/dl16", "rms/1024/dl16"} <= worse


def test_a_fault_shows_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    register_fault(
        Fault("X01", "mm off", "mm", "off by a tenth", "silent", "made for this test",
              (AtOperator(("aten.mm.default",), lambda call: True, lambda call: call.proceed() + 0.1),))
    )  # fmt: skip
    try:
        with faults("X01"):
            assert "operator/linear" in {row.figure.id for row in table(tolerances.operators()).unexplained}
        assert not table(tolerances.operators()).unexplained
    finally:
        unregister_fault("X01")


def test_codes_that_hold_by_construction() -> None:
    assert all(row.status == "met" for row in table([*formats.encodings(), *formats.layouts()]).rows)
    assert measured(formats.crossings()[0]).emulated == 1.4960766e-05
