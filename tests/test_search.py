from __future__ import annotations

from pathlib import Path

import pytest

from harness import search
from harness.errors import UsageError
from harness.records import Cause, Localization, ModuleError, ModuleEvidence, OpError, TensorSpec

MANIFEST = """\
version: 1
models:
  tiny:
    task: embedding
    source: {folder: tiny}
    inputs: {ids: [[1, 2]]}
"""
ERROR = ModuleError(
    name="layers.0 (into down)",
    module="layers.0",
    part="between",
    call=1,
    shape=(1, 4),
    relative_l2=0.05,
    control=0.0002,
)
ROOT = ModuleError(name="model (to its end)", module="", part="between", relative_l2=0.001)


def test_a_localisation_reads_as_a_few_lines() -> None:
    op = OpError(
        op="aten.mm.default",
        operands=(TensorSpec(shape=(2, 3), strides=(3, 1), dtype="float16"),),
        offsets=(6,),
    )
    found = Localization(
        case="tiny/embedding/spyre-eager-float16",
        module=ERROR,
        op=op,
        cause=Cause.LAYOUT,
        sentence="aten.mm.default is wrong",
        modules_wrong=1,
        limit=8,
        evidence=ModuleEvidence(errors=(ERROR, ROOT)),
    )
    assert search.render(found).splitlines() == [
        "tiny/embedding/spyre-eager-float16: aten.mm.default is wrong",
        "cause: layout",
        "  operand float16[2, 3] strides [3, 1] offset 6",
        "2 stretches compared, 1 out of proportion; worst:",
        "  5.00e-02  control 2.00e-04  layers.0 (into down) call 1",
        "  1.00e-03  model (to its end)",
    ]


def test_an_unknown_case_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    manifest = tmp_path / "models.yaml"
    manifest.write_text(MANIFEST)
    request = search.Request(manifest, None, tmp_path, (), 10.0)
    with pytest.raises(UsageError, match="did you mean tiny/embedding/spyre-eager-float16"):
        search.localize("tiny/embedding/spyre-eagr-float16", request)


def test_stretches_are_written_short_and_read_back() -> None:
    written = ModuleEvidence(errors=(ERROR, ROOT)).model_dump_json(include={"errors"})
    assert written == (
        '{"errors":[{"name":"layers.0 (into down)","call":1,"shape":[1,4],"relative_l2":0.05,"control":0.0002},'
        '{"name":"model (to its end)","module":"","relative_l2":0.001}]}'
    )
    assert ModuleEvidence.model_validate_json(written).errors == (ERROR, ROOT)
