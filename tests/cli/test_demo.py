"""`make demo`, on both databases, twice on the same one."""

import os
import subprocess
import sys

import pytest

from tests.markdown import ROOT

pytestmark = pytest.mark.one_database


def test_the_demo_ends_well(database_url: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--url", database_url]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    for _ in range(2):
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "status -9 (SIGKILL)" in result.stdout
        assert "every acknowledged chunk is there, and nothing else: yes" in result.stdout
        assert "not a word missing, none there twice: yes" in result.stdout
        assert "each step counted once: yes" in result.stdout
        assert result.stderr == ""
