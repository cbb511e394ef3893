"""The example survives its kill, and the command line shows what it left."""

import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from persist.cli import main
from tests.subprocesses import ROOT


def run(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "examples" / "pydantic_ai_harness_app.py"), "--url", url, *options]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.long
def test_the_example_survives_its_kill(database_url: str) -> None:
    killed = run(database_url, "--crash-in", "Faro")
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "booking Lisbon\nbooking Porto\n"), killed.stderr
    resumed = run(database_url)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert resumed.stdout == "going on after 5 messages\nbooking Faro\nagent: All 3 are booked.\n"
    listed = CliRunner().invoke(main, ["histories", "runs", "--url", database_url, "-q"])
    first, *_ = listed.output.split()
    shown = CliRunner().invoke(main, ["show", first, "--url", database_url])
    assert (shown.exit_code, "run_completed" in shown.output) == (0, True), shown.output
