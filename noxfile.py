"""Every command that a person or CI runs; ``nox -s conformance`` is the main job."""

from __future__ import annotations

import os
import shutil

import nox

nox.needs_version = ">=2025.2"
nox.options.sessions = ["lint", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.default_venv_backend = "virtualenv"

CONSTRAINTS = ("-c", "constraints.txt")


def install(session: nox.Session, *extras: str) -> None:
    """Install the project at the tested versions, editable, with its extras."""
    project = f".[{','.join(extras)}]" if extras else "."
    session.install(*CONSTRAINTS, "-e", project)


@nox.session
def conformance(session: nox.Session) -> None:
    """Run the smoke matrix and render its report; arguments go to ``conformance run``."""
    install(session)
    arguments = session.posargs or ["--profile", "smoke"]
    # Time to end what is running and to write what is known, when the session is interrupted.
    patience = {"interrupt_timeout": 25.0, "terminate_timeout": 5.0}
    session.run("conformance", "run", *arguments, "--report", "reports/site", **patience)


@nox.session
def report(session: nox.Session) -> None:
    """Render the report of existing run directories: ``nox -s report -- reports/runs/ID``."""
    install(session)
    session.run("conformance", "report", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Test the two packages."""
    install(session, "tests")
    session.run("pytest", "-n", "2", "--dist", "loadfile", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Drive the report in Debian's Chromium: views, queries, accessibility, three readers."""
    need_chromium(session)
    install(session, "tests", "browser")
    session.run("pytest", "tests/browser", *session.posargs)


def need_chromium(session: nox.Session) -> None:
    """Take Debian's package where root may install it; say what to install otherwise."""
    if shutil.which("chromium"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        session.error("chromium is not on PATH; install it (Debian: apt-get install chromium) and run again")
    session.run("apt-get", "update", external=True)
    session.run("apt-get", "install", "-y", "--no-install-recommends", "chromium", external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff and mypy (strict) over the packages; ruff over everything else; actionlint over the workflows."""
    install(session, "tests", "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("actionlint")


@nox.session
@nox.parametrize(
    "package,which",
    [
        nox.param(package, which, id=f"{package}-{which}")
        for package in ("transformers", "torch")
        for which in ("pinned", "previous", "before-previous", "newest")
        if (package, which) != ("torch", "pinned")
    ],
)
def upstream(session: nox.Session, package: str, which: str) -> None:
    """The smoke matrix with other releases, as the index has them: ``nox -s "upstream(transformers-newest)"``."""
    install(session)
    arguments = session.posargs or ["--profile", "smoke"]
    # Not every release of torch has a CPU build; the run then says NOTRUN with the reason, and that is no failure.
    missing = ["--missing-ok"] if package == "torch" else []
    command = ["conformance", "ci", "upstream", "--package", package, "--which", which, *missing]
    session.run(*command, *arguments)


@nox.session
def ci(session: nox.Session) -> None:
    """A step of the nightly workflow, see docs/ci.md: ``nox -s ci -- merge shards --out night``."""
    install(session)
    session.run("conformance", "ci", *session.posargs)


@nox.session
def drill(session: nox.Session) -> None:
    """Break things on purpose, 70 ways, and show that each is told for what it is. Some minutes."""
    install(session, "tests")
    session.run("python", "-m", "tests.drill", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def clickhouse(session: nox.Session) -> None:
    """Send results to a real ClickHouse engine, which chdb runs in this process."""
    install(session, "tests", "clickhouse")
    session.run("pytest", "tests/history/test_clickhouse.py", *session.posargs)


@nox.session
def ray(session: nox.Session) -> None:
    """Run cases on a real Ray cluster of two nodes on this machine, and lose one of them."""
    install(session, "tests", "ray")
    session.run("pytest", "tests/executors/test_ray_cluster.py", "tests/test_nodes.py", *session.posargs)


@nox.session
def audit(session: nox.Session) -> None:
    """Ask for known vulnerabilities of the tested versions. Needs the network: without it, it fails."""
    session.install("pip-audit>=2.9,<3")
    session.run("pip-audit", "--strict", "--no-deps", "--disable-pip", "-r", "constraints.txt", *session.posargs)


@nox.session
def fidelity(session: nox.Session) -> None:
    """Compare the emulated device with every published figure; ``-- --out DIR`` stores the table elsewhere."""
    install(session)
    session.run("python", "-m", "spyre_emulator.fidelity", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session(name="report-peers")
def report_peers(session: nox.Session) -> None:
    """Measure the report beside pytest-html and Allure on the same results. Needs npm; takes most of an hour."""
    need_chromium(session)
    install(session, "tests", "browser")
    session.install(*CONSTRAINTS, "pytest-html==4.2.0", "allure-pytest==2.16.2")
    place = session.create_tmp()
    npm = ("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", place)
    session.run(*npm, "allure@3.18.0", external=True)
    session.run(
        "python", "-m", "benchmarks.report_peers", "--allure", f"{place}/node_modules/.bin/allure", *session.posargs
    )


@nox.session(name="seeded-faults")
def seeded_faults(session: nox.Session) -> None:
    """Measure what the verdict and the rules of peers detect; writes docs/seeded-faults.md and its plot."""
    install(session)
    session.install(*CONSTRAINTS, "polygraphy==0.53.6")
    session.run("python", "-m", "benchmarks.seeded_faults", *session.posargs)
