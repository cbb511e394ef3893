"""The example survives its kill, and the command line shows what it left."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from persist import Store
from persist.cli import main
from persist.schema.migrate import upgrade
from tests.subprocesses import ROOT

pytestmark = pytest.mark.long


def run(url: str, notes: Path, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "examples" / "mcp_app.py"), "--url", url, "--notes", str(notes), *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def test_the_example_survives_its_kill(database_url: str, tmp_path: Path) -> None:
    upgrade(database_url)
    notes, file = tmp_path / "notes.txt", tmp_path / "one.jsonl"
    killed = run(database_url, notes, "--crash-after", "3")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout.split("\n")[:-1] == ["page 1"]
    resumed = run(database_url, notes)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert resumed.stdout.split("\n")[:-1] == ["page 2", "page 3", "page 4", "page 5", "The report is complete."]

    listed = CliRunner().invoke(main, ["ls", "replay_streams", "--url", database_url, "-q"])
    with Store.open(database_url) as store:
        sessions = [one.id for one in store.replay_streams.sessions.list().items]
    assert listed.output.split() == sessions
    assert len(sessions) == 2
    shown = CliRunner().invoke(main, ["show", sessions[0], "--url", database_url])
    assert (shown.exit_code, "notifications/progress" in shown.output) == (0, True), shown.output
    exported = CliRunner().invoke(main, ["export", str(file), "--session", sessions[0], "--url", database_url])
    assert (exported.exit_code, "replay_messages" in file.read_text(encoding="utf-8")) == (0, True)
    pruned = CliRunner().invoke(main, ["prune", "replay_streams", "--older-than", "0s", "--yes", "--url", database_url])
    assert pruned.exit_code == 0, pruned.output
    with Store.open(database_url) as store:
        assert store.replay_streams.sessions.list().items == []
