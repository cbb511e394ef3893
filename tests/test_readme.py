"""What a newcomer copies from the README works, from the top of the repository, without a change."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

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
    assert run_blocks(ROOT / "README.md", namespace) == 2
    assert [message["role"] for message in namespace["messages"]] == ["user", "assistant"]
    assert namespace["messages"][1]["id"] == "msg_answer"
    assert "2 messages in the fork" in capsys.readouterr().out


def test_the_commands_run(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines() if line.startswith(("    export ", "    persist "))]
    assert len(lines) == 5
    name, _, url = lines.pop(0).removeprefix("export ").partition("=")
    monkeypatch.setenv(name, url)
    runner, session = CliRunner(), ""
    for line in lines:
        command, _, stream = line.partition("#")[0].removeprefix("persist ").partition("<")
        args = [session if word == "SESSION" else word for word in command.split()]
        result = runner.invoke(main, args, input=(repository / stream.strip()).read_bytes() if stream else None)
        assert result.exit_code == 0, result.output
        session = session or result.stdout.split()[1]
