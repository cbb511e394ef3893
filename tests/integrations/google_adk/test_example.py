"""The example survives its kill, and the command line shows what it left."""

import signal
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from persist import Store
from persist.cli import main
from persist.schema.migrate import upgrade
from tests.subprocesses import ROOT


def run(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "examples" / "google_adk_app.py"), "--url", url, *options]
    return subprocess.run(line, capture_output=True, text=True, timeout=240, check=False)


def test_the_example_survives_its_kill_and_is_shown(database_url: str, tmp_path: Path) -> None:
    upgrade(database_url)
    killed = run(database_url, "--crash-in", "Faro")
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout.splitlines() == ["booking Lisbon", "booking Porto", "booking Faro"]
    resumed = run(database_url)
    assert resumed.returncode == 0
    assert resumed.stdout.splitlines() == [
        "going on after 6 events",
        "booking Faro",
        "agent: Booked: Lisbon, Porto, Faro.",
        "state: ['Lisbon', 'Porto', 'Faro'], last Faro",
        "artifacts: ['user:Faro.txt', 'user:Lisbon.txt', 'user:Porto.txt']",
    ]
    (id,) = CliRunner().invoke(main, ["ls", "app_sessions", "--url", database_url, "-q"]).output.split()
    with Store.open(database_url) as store:
        one = store.app_sessions.sessions.get(id)
    for known in (id, f"{one.app_name}/{one.user_id}/{one.session_id}"):
        shown = CliRunner().invoke(main, ["show", known, "--url", database_url])
        assert shown.exit_code == 0
        assert "Booked: Lisbon, Porto, Faro." in shown.output
    file = tmp_path / "trip.jsonl"
    exported = CliRunner().invoke(main, ["export", str(file), "--session", id, "--url", database_url])
    assert exported.exit_code == 0
    assert "app_session_events" in file.read_text(encoding="utf-8")
