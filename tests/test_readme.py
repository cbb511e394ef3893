"""What a newcomer copies from the README works, from the top of the repository, without a change."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from persist import Store
from persist.cli import main
from tests.markdown import ROOT, run_blocks


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the example, where nothing is spoilt."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_code_runs(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    assert run_blocks(ROOT / "README.md", namespace) == 3
    assert [message["role"] for message in namespace["messages"]] == ["user", "assistant"]
    assert namespace["messages"][1]["id"] == "msg_answer"
    assert [(run.id, run.total_tokens) for run in namespace["page"].items] == [(namespace["run"].id, 1234)]
    assert capsys.readouterr().out == "2 messages in the fork\n1 gate waits for an answer\n"


def test_the_commands_run(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open("sqlite:///state.db") as store, store.begin() as tx:  # as the code above the commands makes them
        run = tx.workflows.runs.create("triage", trigger_id="issue/42", current_phase="plan")
        gate = tx.workflows.approvals.pause_for_approval(run.id, gate="review", summary="Merge it?", marker=("review", None))
    named = {"RUN": run.id, "APPROVAL": gate.id}
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if line.startswith(("    export ", "    persist "))]
    assert len(lines) == 11
    name, _, url = lines.pop(0).removeprefix("export ").partition("=")
    monkeypatch.setenv(name, url)
    runner, shown = CliRunner(), []
    for line in lines:
        command, _, stream = line.partition("#")[0].removeprefix("persist ").partition("<")
        args = [named.get(word, word) for word in command.split()]
        data = (repository / stream.strip()).read_bytes() if stream else None
        result = runner.invoke(main, args, input=data)
        assert result.exit_code == 0, result.output
        shown.append(result.stdout)
        named.setdefault("SESSION", result.stdout.split()[1])
    assert f"Approved review; run {run.id} is running.\n" in shown


def test_the_harness_runs(repository: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line.partition("#")[0].split() for line in text.splitlines() if line.startswith("    python examples/harness.py")]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    codes = [
        subprocess.run([sys.executable, *line[1:]], cwd=repository, env=environment, capture_output=True, timeout=60).returncode
        for line in lines
    ]
    assert codes == [-signal.SIGKILL, 0, 0]
