"""``conformance bisect`` as it is typed, over real wheels in a folder; one real case at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import upstream
from harness.bisection import Layer, Reading
from harness.cli import app
from harness.errors import UsageError
from harness.records import Comparison, OutputComparison, PairNumbers, Status
from tests.bisection.test_environments import wheel
from tests.stored_runs import FIRST, result

PROBE = "python -c 'import planted, sys; sys.exit(planted.answer)'"


@pytest.fixture
def links(tmp_path: Path) -> Path:
    """Releases 1.0 to 1.4 of a package: broken from 1.3 on, 1.2 cannot be installed."""
    folder = tmp_path / "wheels"
    for minor in range(5):
        requires = "Requires-Dist: no-such-package-at-all==9\n" if minor == 2 else ""
        wheel(folder, f"1.{minor}", f"answer = {int(minor >= 3)}\n", requires)
    return folder


def bisect(tmp_path: Path, links: Path, *arguments: str, probe: str = PROBE) -> tuple[int, str, str]:
    words = ["bisect", "a/case", "--find-links", str(links), "--out", str(tmp_path / "out"), "--probe", probe]
    done = CliRunner().invoke(app, [*words, *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def ends(good: str, bad: str, package: str = "planted") -> tuple[str, ...]:
    return ("--package", package, "--good", good, "--bad", bad)


def test_a_planted_break_is_found_beside_a_release_that_cannot_be_installed(tmp_path: Path, links: Path) -> None:
    status, text, said = bisect(tmp_path, links, *ends("1.0", "1.4"))
    assert status == 0
    assert text.splitlines() == [
        "  planted 1.0: good",
        "  planted 1.1: good",
        "  planted 1.2: untestable",
        "  planted 1.3: bad",
        "  planted 1.4: bad",
        "found: planted 1.1 is good, 1.3 is bad; 1.2 between them cannot be tested",
        "planted: 5 of 5 releases asked, all in order",
    ]
    assert said.splitlines()[:3] == [
        "planted: 5 releases from 1.0 to 1.4",
        "planted==1.0: good: exit 0",
        "planted==1.0: good: exit 0",
    ]
    assert "no-such-package-at-all" in said
    assert not any((tmp_path / "out").glob("*/environments"))


def test_an_interrupted_search_goes_on_where_it_stopped(tmp_path: Path, links: Path) -> None:
    counter, script = tmp_path / "count", tmp_path / "probe.sh"
    script.write_text(f"echo >> {counter}\ntest $(wc -l < {counter}) -eq 3 && exit 7\nexec {PROBE}\n")
    request = upstream.Request(Path(), tmp_path / "out", ("--no-index", "--find-links", str(links)), f"sh {script}")

    def say(line: str) -> None:
        if line.endswith("exit 7"):
            raise KeyboardInterrupt

    search = [("planted", "1.4", "1.1")]
    script.write_text(script.read_text().replace("planted.answer", "1 - planted.answer"))
    with pytest.raises(KeyboardInterrupt):
        upstream.bisect("a/case", search, request, say)
    lines: list[str] = []
    found = upstream.bisect("a/case", search, request, lines.append)
    assert lines[1] == "1 combinations are in the journal"
    assert found.finding.sentence == "planted 1.3 is good, 1.1 is bad; 1.2 between them cannot be tested"
    asked = [json.loads(line) for line in (tmp_path / "out" / "journal.jsonl").read_text().splitlines()[1:]]
    # The one that was interrupted runs again, what was answered does not; 1.2 never runs.
    assert len(counter.read_text()) == sum(one["reading"] != "untestable" for one in asked) + 1
    tree = json.loads(found.json())
    assert (tree["finding"]["kind"], tree["finding"]["culprits"][0]["first_bad"]) == ("found", "1.1")
    with pytest.raises(UsageError, match="give another --out"):
        upstream.bisect("a/case", [("planted", "1.0", "1.4")], request, say)


def test_each_package_has_its_ends(tmp_path: Path, links: Path) -> None:
    with pytest.raises(UsageError, match="equally often"):
        bisect(tmp_path, links, *ends("1.0", "1.4"), "--good", "1.1")


def test_a_flaky_case_is_said_and_not_bisected(tmp_path: Path, links: Path) -> None:
    flag = tmp_path / "flag"
    status, text, _ = bisect(tmp_path, links, *ends("1.0", "1.4"), probe=f"sh -c 'rm {flag} || ! touch {flag}'")
    assert (status, text) == (
        1,
        "flaky: planted 1.0 is bad and good in turn: the case is flaky, so not bisected\n",
    )


def test_a_probe_that_cannot_tell(tmp_path: Path, links: Path) -> None:
    status, text, _ = bisect(tmp_path, links, *ends("1.0", "1.4"), probe="sh -c 'exit 125'")
    assert (status, text) == (1, "untestable: the good end planted 1.0 cannot be tested: exit 125\n")


def test_a_probe_that_does_not_exist(tmp_path: Path) -> None:
    request = upstream.Request(Path(), tmp_path, probe="no-such-program")
    with pytest.raises(UsageError, match="no-such-program: cannot be started"):
        upstream.ask_command(Layer(Path(sys.executable)), request)


def test_a_case_that_is_not_there() -> None:
    manifest = Path(__file__).parent.parent / "models.yaml"
    with pytest.raises(UsageError, match="has no case a/case; see `conformance list`"):
        upstream.find("a/case", manifest)
    name = "minilm-l6-v2/embedding/spyre-eager-float16"
    assert upstream.find(name, manifest).id == name


@pytest.mark.parametrize(
    ("status", "error", "above", "reading"),
    [
        (Status.PASS, 0.01, None, Reading.GOOD),
        (Status.XFAIL, 0.01, None, Reading.GOOD),
        (Status.XPASS, 0.01, None, Reading.GOOD),
        (Status.FAIL, 0.01, None, Reading.BAD),
        (Status.NOTRUN, None, None, Reading.UNTESTABLE),
        (Status.ERROR, None, 0.1, Reading.UNTESTABLE),
        (Status.SKIP, None, None, Reading.UNTESTABLE),
        (Status.PASS, 0.01, 0.005, Reading.BAD),
        (Status.PASS, 0.01, 0.02, Reading.GOOD),
        (Status.PASS, None, 0.02, Reading.UNTESTABLE),
        (Status.FAIL, None, 0.02, Reading.BAD),
    ],
)
def test_what_a_result_says(status: Status, error: float | None, above: float | None, reading: Reading) -> None:
    numbers = PairNumbers(finite_pairs=2, relative_l2=error)
    comparison = Comparison(outputs=(OutputComparison(name="logits", shape=(2,), elements=2, candidate=numbers),))
    told = result("a", status, FIRST).model_copy(update={"comparison": comparison if error is not None else None})
    assert upstream.read(told, above).reading is reading


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--above", "nan"), "--above nan: a relative L2 error is a finite number above 0, for instance 0.01"),
        (("--above", "-1"), "--above -1.0: a relative L2 error is a finite number above 0, for instance 0.01"),
        (("--find-links", "nowhere"), "--find-links nowhere: no such folder; name one that holds wheels"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_an_index_is_asked(words: tuple[str, ...], sentence: str) -> None:
    command = ["bisect", "a/case", "--package", "planted", "--good", "1.0", "--bad", "1.3", *words]
    done = subprocess.run([sys.executable, "-m", "harness", *command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"conformance: {sentence}\n")
