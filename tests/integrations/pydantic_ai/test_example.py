"""The example is killed in the middle and goes on."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.long
def test_the_example_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    line = [sys.executable, str(ROOT / "examples/pydantic_ai_app.py"), str(tmp_path / "state.db")]
    killed = subprocess.run([*line, "--crash-after", "2"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (killed.returncode, killed.stdout.count("\n")) == (9, 2)
    resumed = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert resumed.returncode == 0
    assert resumed.stdout == "What is left? That was question 3.\nAre we done? That was question 4.\n"
