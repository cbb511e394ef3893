"""The same story on this system, and on pretended ones: see tests.systems.story."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.systems.story import DIED

ROOT = Path(__file__).parents[2]


def _told(system: str, part: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-X", "warn_default_encoding", "-m", "tests.systems.story", system, part, str(folder)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("system", ["this", "windows", "mac"] if sys.platform == "linux" else ["this"])
def test_a_harness_works_on_every_system(system: str, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    died = _told(system, "crash", folder)
    assert died.returncode == DIED, died.stderr
    ended = _told(system, "rest", folder)
    assert ended.returncode == 0, ended.stderr
