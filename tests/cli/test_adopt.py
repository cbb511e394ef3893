"""persist adopt, as an operator meets it."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from persist import Store
from persist.cli import main
from persist.schema.metadata import HEAD
from tests.adopt.shapes import CONVERSATIONS, FIRST_WORKFLOWS, INSTANCE, PROGRAMS
from tests.cli.golden import assert_golden

Adopt = Callable[..., Result]

ROWS = """
INSERT INTO messaging_sessions VALUES ('s1', 'p', 'c', NULL, 'u', '2025-01-01T00:00:00.000Z', '2025-01-01T00:00:00Z', 0, 1, 'x'),
    ('s2', 'p', 'c', NULL, 'u', '2025-01-01T00:00:00.000Z', '2025-01-02T00:00:00Z', 0, 1, 'x');
INSERT INTO progressions VALUES ('p', 1.0, '["a", "b"]');
INSERT INTO run (id) VALUES ('20260116-143052-a7b3c9');
"""
SAME = {r"\d{8}T\d{6}Z": "INSTANT", rf"revision {HEAD}": "revision HEAD"}


@pytest.fixture
def adopt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Adopt:
    """`adopt("file.db", …)` in a folder where file.db is one of several systems at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERSIST_DATABASE_URL", raising=False)
    with closing(sqlite3.connect("file.db")) as raw:
        raw.executescript(FIRST_WORKFLOWS + CONVERSATIONS + INSTANCE + PROGRAMS + ROWS)
    return lambda *args, **options: CliRunner().invoke(main, ["adopt", *args], **options)


def test_what_is_printed(adopt: Adopt) -> None:
    result = adopt("file.db")
    assert result.exit_code == 0, result.stderr
    assert_golden("adopt", result.stdout, SAME)
    with Store.open("sqlite:///file.db") as store, store.read() as tx:
        assert tx.conversations.progressions.get("p") == ["a", "b"]


def test_a_dry_run_prints_the_same_and_changes_nothing(adopt: Adopt) -> None:
    before = Path("file.db").read_bytes()
    result = adopt("file.db", "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert_golden("adopt_dry_run", result.stdout, SAME)
    assert Path("file.db").read_bytes() == before
    assert [path.name for path in Path().iterdir()] == ["file.db"]


def test_the_second_time_there_is_nothing_to_do(adopt: Adopt) -> None:
    adopt("file.db", "--no-backup")
    result = adopt("--url", "sqlite:///file.db")
    assert (result.exit_code, result.stdout) == (
        0,
        f"file.db needs no adopting: persist made or adopted it before. It is at {HEAD}.\n",
    )
    assert adopt("file.db", "-q").stdout == ""


def test_json_for_scripts(adopt: Adopt) -> None:
    told = json.loads(adopt("file.db", "--json").stdout)
    assert told["adopted"]
    assert told["moved"] == 2
    assert told["run_id"] == "20260116-143052-a7b3c9"
    assert told["rebuilt"] == ["messaging_sessions"]
    assert Path(told["backup_path"]).exists()
    assert {"table": "messaging_sessions", "rule": told["settled"][0]["rule"], "count": 1} in told["settled"]
    assert told["notices"][0]["subject"] == "messaging_sessions.last_activity_at"


def test_quiet_prints_the_backup_alone(adopt: Adopt) -> None:
    result = adopt("file.db", "--quiet")
    assert Path(result.stdout.strip()).exists()
    assert len(result.stdout.splitlines()) == 1


def test_the_environment_names_the_file(adopt: Adopt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERSIST_DATABASE_URL", "sqlite:///file.db")
    assert adopt("-q").exit_code == 0
    assert "needs no adopting" in adopt().stdout


FAILURES = {
    "missing": (["nobody.db"], 1, "Error: There is no SQLite file 'nobody.db'."),
    "text": (["text.db"], 1, "Error: text.db: file is not a database"),
    "empty": (["empty.db"], 1, "Error: url: none of the tables in empty.db is one that persist knows; nothing was changed."),
    "stranger": (
        ["stranger.db"],
        1,
        "Error: Tables of these names are not the ones that persist knows: tasks has no id; nothing was changed.",
    ),
    "server": (
        ["--url", "postgresql://me:secret@nowhere.invalid/x"],
        1,
        "Error: postgresql: only files are adopted; adopt the SQLite file, then copy it here.",
    ),
    "nothing": ([], 2, "Error: Which file? Name it, give --url FILE, or set PERSIST_DATABASE_URL."),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_one_line(adopt: Adopt, name: str) -> None:
    Path("text.db").write_text("hello")
    Path("empty.db").touch()
    with closing(sqlite3.connect("stranger.db")) as raw:
        raw.execute("CREATE TABLE tasks (number INTEGER PRIMARY KEY)")
    args, code, line = FAILURES[name]
    result = adopt(*args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.splitlines()[-1] == line
    assert "secret" not in result.stderr
    assert "Traceback" not in result.stderr
