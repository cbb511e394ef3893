"""The example survives its kill, and the command line shows what it left."""

import signal
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from persist.cli import main
from persist.schema.migrate import upgrade
from tests.subprocesses import ROOT


def run(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "examples" / "langgraph_app.py"), "--url", url, *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def test_the_example_survives_its_kill(database_url: str) -> None:
    upgrade(database_url)
    killed = run(database_url, "--crash-in", "Faro")
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.split("\n")[:-1] == ["booking Lisbon", "booking Porto"]
    resumed = run(database_url)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert resumed.stdout.split("\n")[:-1] == ["booking Faro", "All 3 are booked.", "booked: Faro Lisbon Porto"]
    assert run(database_url).stdout == "The trip is booked already.\n"


def test_the_command_line_shows_its_thread(database_url: str, tmp_path: Path) -> None:
    upgrade(database_url)
    run(database_url)
    listed = CliRunner().invoke(main, ["ls", "checkpoints", "--url", database_url, "-q"])
    assert listed.output == "trip\n"
    shown = CliRunner().invoke(main, ["show", "trip", "--url", database_url])
    assert shown.exit_code == 0
    assert "loop" in shown.output
    file = tmp_path / "trip.jsonl"
    exported = CliRunner().invoke(main, ["export", str(file), "--session", "trip", "--url", database_url])
    assert exported.exit_code == 0
    assert "checkpoint_states" in file.read_text(encoding="utf-8")
