"""The example survives its kill, and the command line shows what it left."""

import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from persist.cli import main
from persist.schema.migrate import upgrade
from tests.subprocesses import ROOT

pytestmark = pytest.mark.long


def run(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "examples" / "a2a_app.py"), "--url", url, *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def test_the_example_survives_its_kill(database_url: str) -> None:
    upgrade(database_url)
    killed = run(database_url, "--crash-after", "3")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout.split("\n")[:-1] == [f"writing chapter {number}" for number in (1, 2, 3)]
    resumed = run(database_url)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert resumed.stdout.split("\n")[:-1] == ["writing chapter 4", "writing chapter 5", "The book has 5 chapters."]
    id = CliRunner().invoke(main, ["ls", "agent_tasks", "--url", database_url, "-q"]).output.strip()
    shown = CliRunner().invoke(main, ["show", id, "--url", database_url])
    assert (shown.exit_code, "TASK_STATE_COMPLETED" in shown.output) == (0, True), shown.output
