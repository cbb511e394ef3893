"""examples/program.py, killed at every step and run again."""

import signal
import sys
from pathlib import Path

import pytest

from persist.programs import audit, list_run_files, open_run_file
from tests.command_line import Sqlite3
from tests.markdown import ROOT

VALUES = ["draft = draft 3", "review = It's thorough; `costs` nothing.", "survey = Three approaches are known."]
STATES = {
    "parallel:": "completed",
    "survey": "completed",
    "review": "completed",
    "rumour": "failed",
    "loop until **good enough** (max: 3):": "completed",
}


@pytest.mark.parametrize("step", ["survey", "review", "rumour", "join", "loop", "end"])
def test_a_killed_program_goes_on(sqlite3_shell: Sqlite3, tmp_path: Path, step: str) -> None:
    line = [sys.executable, str(ROOT / "examples" / "program.py"), "--root", str(tmp_path)]
    killed = sqlite3_shell.start([*line, "--crash-at", step])
    assert (killed.returncode, killed.stderr) == (-signal.SIGKILL, "")
    run = killed.stdout.split()[1]
    ended = sqlite3_shell.start(line)
    assert (ended.returncode, ended.stderr) == (0, "")
    first, *lines = ended.stdout.splitlines()
    assert first == f"resuming {run}"
    assert lines[-3:] == VALUES
    before = [said for said in killed.stdout.splitlines()[1:] if said.startswith(("survey", "review", "rumour", "loop"))]
    assert not set(before) & set(lines)  # nothing that was done is done again
    (path,) = list_run_files(tmp_path)
    with open_run_file(path) as store, store.read() as tx:
        executions = tx.programs.executions.list(run)
        assert {one.statement_text: one.status for one in executions} == STATES
        assert len(executions) == len(STATES)
        assert tx.programs.runs.get(run).status == "completed"
    with open_run_file(path) as store:
        assert audit(store, run) == []
    assert sqlite3_shell.start(line).stdout.startswith("starting ")
