"""examples/program.py, killed at every step and run again."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from persist.programs import audit, list_run_files, open_run_file
from tests.command_line import Sqlite3
from tests.markdown import ROOT
from tests.subprocesses import Worker

Program = Callable[..., subprocess.CompletedProcess[str]]

VALUES = ["draft = draft 3", "review = It's thorough; `costs` nothing.", "survey = Three approaches are known."]
STATES = {
    "parallel:": "completed",
    "survey": "completed",
    "review": "completed",
    "rumour": "failed",
    "loop until **good enough** (max: 3):": "completed",
}


@pytest.fixture
def program(sqlite3_shell: Sqlite3, tmp_path: Path) -> Program:
    """`program("--crash-at", …)` runs it until it ends or kills itself."""
    line = [sys.executable, str(ROOT / "examples" / "program.py"), "--root", str(tmp_path)]
    return lambda *args: sqlite3_shell.start([*line, *args])


@pytest.fixture
def forked(sqlite3_shell: Sqlite3, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """`forked("--crash-at", …)` does as `program` does, for many starts: forked from a process that has loaded persist."""
    errors = tmp_path_factory.mktemp("said") / "errors"

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        line = [sqlite3_shell.env["PATH"], errors, "--root", tmp_path, *args]
        with Worker("tests.programs.example_worker", *line) as worker:
            said, _ = worker.communicate(timeout=60)
        return subprocess.CompletedProcess(worker.args, worker.wait(), said, errors.read_text(encoding="utf-8"))

    return run


def assert_it_goes_on(program: Program, root: Path, step: str) -> None:
    killed = program("--crash-at", step)
    assert (killed.returncode, killed.stderr) == (-signal.SIGKILL, "")
    run = killed.stdout.split()[1]
    ended = program()
    assert (ended.returncode, ended.stderr) == (0, "")
    first, *lines = ended.stdout.splitlines()
    assert first == f"resuming {run}"
    assert lines[-3:] == VALUES
    before = [said for said in killed.stdout.splitlines()[1:] if said.startswith(("survey", "review", "rumour", "loop"))]
    assert not set(before) & set(lines)  # nothing that was done is done again
    (path,) = list_run_files(root)
    with open_run_file(path) as store, store.read() as tx:
        executions = tx.programs.executions.list(run)
        assert {one.statement_text: one.status for one in executions} == STATES
        assert len(executions) == len(STATES)
        assert tx.programs.runs.get(run).status == "completed"
    with open_run_file(path) as store:
        assert {one.code for one in audit(store, run)} <= {"raw_write"}  # what subagents wrote by a shell
    assert program().stdout.startswith("starting ")


def test_a_killed_program_goes_on(program: Program, tmp_path: Path) -> None:
    assert_it_goes_on(program, tmp_path, "review")


@pytest.mark.parametrize("step", ["survey", "review", "rumour", "join", "loop", "end"])
def test_killed_at_every_step_it_goes_on(forked: Program, tmp_path: Path, step: str) -> None:
    assert_it_goes_on(forked, tmp_path, step)
