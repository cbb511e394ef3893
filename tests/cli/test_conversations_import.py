"""`persist conversations import`, on both databases."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persist.cli import main

pytestmark = pytest.mark.one_database

Command = Callable[..., Result]
EVIL = "\x1b[2J\x9b\u202e"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two runs, and one with a broken manifest, whose name would take over a terminal."""
    for name, manifest in (("r1", '{"status": "timeout"}'), ("r2", "{}"), (f"r3{EVIL}", "{")):
        (tmp_path / "runs" / name / "branches").mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text(manifest)
        branch = {
            "messages": {"collections": [{"id": f"{name}-m", "created_at": 1_767_000_000.5, "role": "user", "content": "hi"}]}
        }
        (tmp_path / "runs" / name / "branches" / f"{name}-b.json").write_text(json.dumps(branch))
    return tmp_path / "runs"


def test_import_counts_what_it_did_and_fails_for_errors(command: Command, runs: Path, database_url: str) -> None:
    result = command("conversations", "import", str(runs))
    assert (result.exit_code, result.stdout) == (1, "2 imported, 0 skipped, 1 errors\n")
    assert not {"\x1b", "\x9b", "\u202e"} & set(result.stderr)
    warning, error = result.stderr.splitlines()
    assert warning.startswith("Warning: the run 'r3\\x1b[2J")
    assert error == f"Error: Of the runs below {str(runs)!r}, 1 could not be imported."
    again = command("conversations", "import", str(runs), "--json")
    assert (again.exit_code, json.loads(again.stdout)) == (1, {"imported": 0, "skipped": 2, "errors": 1})
    (runs / f"r3{EVIL}" / "run.json").write_text('{"id": "r3"}')
    last = command("conversations", "import", str(runs), "-q")
    assert (last.exit_code, last.output) == (0, "")
    assert sorted(command("conversations", "ls", "-q", "--source", "imported_fs").stdout.split()) == ["r1", "r2", "r3"]
    assert "  hi\n" in command("conversations", "show", "r1").stdout


def test_import_of_no_folder_makes_no_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    result = CliRunner().invoke(main, ["conversations", "import", str(tmp_path / "none"), "--url", url])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: There is no folder ")
    assert list(tmp_path.iterdir()) == []
