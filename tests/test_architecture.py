"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parent.parent / "harness"

JOINTS = {
    "__main__",
    "apart",
    "ci",
    "cli",
    "combinations",
    "condensed",
    "control",
    "damage",
    "defects",
    "diagnosis",
    "investigate",
    "jobs",
    "nightly",
    "nodes",
    "options",
    "oracle",
    "over_time",
    "pipeline",
    "plugin",
    "processes",
    "search",
    "settings",
    "stock",
    "subject",
    "suite",
    "upstream",
}
"""Modules that may name several stages: they join them or speak to the user."""

FOUNDATIONS = {"records", "errors"}
"""What every stage may import."""

PARTS = {"references": {"checkpoints"}}
"""Stages that build on another one: references are locked and hashed as checkpoints are."""


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "harness":
            names = [f"harness.{alias.name}" for alias in node.names] if node.module == "harness" else [node.module]
            found.update(room(name) for name in names)
        elif isinstance(node, ast.Import):
            found.update(room(a.name) for a in node.names if a.name.startswith("harness."))
    return found


def test_stages_do_not_import_one_another() -> None:
    offences = []
    for path in sorted(HARNESS.rglob("*.py")):
        here = path.relative_to(HARNESS).parts[0].removesuffix(".py")
        if here in JOINTS or path.name == "preload.py":
            continue
        foreign = imports_of(path) - FOUNDATIONS - PARTS.get(here, set()) - {here}
        offences += [f"{path.relative_to(HARNESS)} imports {name}" for name in sorted(foreign)]
    assert offences == []


def test_commands_print_what_cannot_steer_a_terminal() -> None:
    """Through `harness.terminal.say`: names, messages and stored runs are of others."""
    printing = {"typer.echo", "typer.secho", "print"}
    offences = [
        f"{path.name}:{node.lineno} calls {ast.unparse(node.func)}"
        for path in (HARNESS / f"{name}.py" for name in ("cli", "ci", "defects", "over_time", "damage"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in printing
    ]
    assert offences == []


def names_the_emulator(path: Path) -> bool:
    """Whether a file imports it, or asks import_module for it. Text that it writes for others does not count."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [node.module or ""]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            found = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        else:
            continue
        if any(name.split(".")[0] == "spyre_emulator" for name in found):
            return True
    return False


def test_only_the_spyre_target_imports_the_emulator() -> None:
    users = [str(path.relative_to(HARNESS)) for path in sorted(HARNESS.rglob("*.py")) if names_the_emulator(path)]
    assert users == ["targets/spyre.py"]


@pytest.mark.parametrize(
    "module", ["cli", "pipeline", "plugin", "manifest", "matrix", "verdict", "store", "report", "references"]
)
def test_the_controller_side_imports_without_torch(module: str) -> None:
    code = (
        f"import sys, harness.{module}\n"
        "heavy = {'torch', 'transformers', 'pandas', 'pyarrow', 'huggingface_hub'} & set(sys.modules)\n"
        "sys.exit(' '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
