"""The example survives its kill, and the command line shows, writes and imports what it left."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from persist.cli import main
from persist.schema.migrate import upgrade
from tests.subprocesses import ROOT

SESSION = "6f0c1c3e-8f6a-4d55-9a52-0d1f5a9b7c11"


def run(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "examples" / "claude_agent_sdk_app.py"), "--url", url, *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)


def said(url: str, *arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments, "--url", url])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.long
def test_the_example_survives_its_kill(database_url: str, tmp_path: Path) -> None:
    upgrade(database_url)
    killed = run(database_url, "--crash-in", "Faro")
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "Lisbon is booked.\nPorto is booked.\n")
    resumed = run(database_url)
    assert (resumed.returncode, resumed.stdout) == (0, "Faro is booked.\n1 session with all of them\n")

    assert said(database_url, "ls", "transcripts", "-q") == f"{SESSION}\n"
    assert "Porto is booked." in said(database_url, "show", SESSION)
    written = Path(said(database_url, "transcripts", "write", SESSION, "--home", str(tmp_path)).strip())
    assert len(written.read_text(encoding="utf-8").splitlines()) == 6
    counts = json.loads(said(database_url, "transcripts", "import", "--home", str(tmp_path), "--json"))
    assert counts == {"sessions": 1, "entries": 0, "skipped": 0}
    file = tmp_path / "exported.jsonl"
    said(database_url, "export", str(file), "--session", SESSION)
    assert "transcript_entries" in file.read_text(encoding="utf-8")
    said(database_url, "prune", "transcripts", "--older-than", "0m", "--yes")
    assert said(database_url, "ls", "transcripts", "-q") == ""
