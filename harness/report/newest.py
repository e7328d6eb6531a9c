"""The newest run in full: details per model, matrix, ops, downloads, badges, logs, reproducers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.records import Case, CaseResult
from harness.report.chunks import Tree, packed
from harness.report.compat import Support, badge, support
from harness.report.details import case_text, planned_text
from harness.report.digest import RunDigest, digest
from harness.report.inputs import ReportRun
from harness.report.junit import document, testcase
from harness.report.logs import Shelf
from harness.report.markdown import summary
from harness.report.matrix import CaseFacts, Configuration, ModelEntry, configurations, entries, matrix
from harness.report.numbers import dumps
from harness.report.ops import OpTable
from harness.report.rows import CaseRow, missing_row, result_row
from harness.report.tables import csv_table, json_table
from harness.report.text import shown
from harness.report.timeline import Timeline


class Newest:
    """The newest run while it is read and written. Its results are read once and not kept."""

    def __init__(self, source: ReportRun, tree: Tree) -> None:
        self._source = source
        self._tree = tree
        self._shelf = Shelf(source.directory, source.reproducers, tree)
        self._details: dict[str, str] = {}
        self._junit: dict[str, str] = {}
        self._facts: dict[str, CaseFacts] = {}
        self._ops = OpTable()
        self._cases: dict[str, Case] = {case.id: case for case in source.run.plan}
        self.table: dict[str, CaseRow] = {}
        """Rows by case id."""
        self.digest: RunDigest = digest(source, self._visit)
        for case_id in self.digest.facts.missing:
            self._keep(missing_row(source.run.run_id, self._cases[case_id]), planned_text(self._cases[case_id]))
        self.rows: list[ModelEntry] = entries(self._cases.values())

    @property
    def ids(self) -> list[str]:
        """Case ids in the order of the matrix."""
        return [case.id for row in self.rows for case in row.cases]

    @property
    def configurations(self) -> list[Configuration]:
        """The matrix's columns."""
        return configurations(self.rows)

    @property
    def support(self) -> list[Support]:
        """The compatibility table."""
        return support(self.rows, self.table)

    def _visit(self, result: CaseResult) -> None:
        more = {"log": self._shelf.log(result), "reproducer": self._shelf.reproducer(result)}
        text = case_text(result, **{key: value for key, value in more.items() if value})
        self._keep(result_row(self._source.run.run_id, result), text, result.outcome.detail)
        self._facts[result.case.id] = CaseFacts.of(result)
        self._cases.setdefault(result.case.id, result.case)
        self._ops.add(result)

    def _keep(self, row: CaseRow, text: str, detail: str = "") -> None:
        self.table[row.case_id] = row
        self._details[row.case_id] = text
        self._junit[row.case_id] = testcase(row, detail)

    def write(self, timeline: Timeline, labels: Mapping[str, str]) -> None:
        """Write all data of the newest run."""
        sizes = (sum(len(self._details[case.id]) for case in row.cases) for row in self.rows)
        starts = packed(sizes)
        for number, start in enumerate(starts):
            end = starts[number + 1] if number + 1 < len(starts) else len(self.rows)
            self._write_chunk(number, self.rows[start:end], timeline)
        ids = self.ids
        packed_matrix = matrix(self.rows, self.digest, timeline, self._facts, labels)
        self._tree.data("matrix", {**packed_matrix, "starts": starts})
        self._tree.data("ops", self._ops.index(ids))
        self._tree.data("variants", self._ops.variants(ids))
        self._write_downloads(ids)
        for line in self.support:
            self._tree.write(line.badge, dumps(badge(line)) + "\n")

    def _write_chunk(self, number: int, rows: Sequence[ModelEntry], timeline: Timeline) -> None:
        """Write the details of neighbouring models and, beside them, their numbers over time."""
        self._tree.text_chunk(f"detail-{number}", f"[{','.join(self._model_text(row) for row in rows)}]")
        first = timeline.place[rows[0].cases[0].id]
        last = timeline.place[rows[-1].cases[-1].id] + 1
        self._tree.data(f"history-{number}", {"first": first, **timeline.history(first, last)})

    def _write_downloads(self, ids: Sequence[str]) -> None:
        ordered = [self.table[case_id] for case_id in ids]
        self._tree.write("data/cases.csv", csv_table(ordered))
        self._tree.write("data/cases.json", json_table(ordered))
        self._tree.write("data/junit.xml", document(self._source.run, [self._junit[case_id] for case_id in ids]))
        self._tree.write("data/summary.md", summary(self._source.run.run_id, ordered, self.digest))

    def _model_text(self, row: ModelEntry) -> str:
        """The model's details; its texts are let go, for they are the most of the memory."""
        cases = ",".join(self._details.pop(case.id) for case in row.cases)
        head = dumps({"model": shown(row.model, 300), "task": row.task})
        return f'{head[:-1]},"cases":[{cases}]}}'
