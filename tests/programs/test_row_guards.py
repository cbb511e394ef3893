"""Rules that hold for a shell which knows nothing of persist: it is refused, told why, and nothing is written."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text

from persist import Store
from persist.db.transactions.verb_frame import Verb
from persist.errors import Conflict
from persist.maintenance import backup, copy, doctor, quarantined, rebuild, restore_row
from persist.programs import audit, open_run_file
from persist.store.transaction import work_of
from tests.cases import each
from tests.command_line import Sqlite3
from tests.programs.raw_rows import before_guards, put

BOUND_ONCE = "bindings.kind: a const or an input is bound once"


ROWS = "SELECT name, kind, value, attachment_path FROM bindings ORDER BY name"


def values(file: Path, sql: str = ROWS) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(file)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@pytest.fixture
def bound(run_file: Store, run: str) -> None:
    """A const, an input and a let."""
    with run_file.begin() as tx:
        for name, kind in (("topic", "const"), ("goal", "input"), ("draft", "let")):
            tx.programs.bindings.bind(run, name, "as it was", kind=kind)


@each("name", ["topic", "goal"])
@each(
    "sql",
    [
        "INSERT OR REPLACE INTO bindings (name, execution_id, kind, value) VALUES ('{name}', NULL, 'let', 'other')",
        "INSERT OR REPLACE INTO bindings (name, kind, value) VALUES ('{name}', 'const', 'other')",
        "INSERT OR REPLACE INTO bindings (name, kind, value) VALUES ('{name}', NULL, 'as it was')",
        "INSERT OR IGNORE INTO bindings (name, kind, value) VALUES ('{name}', 'let', 'other')",
        "REPLACE INTO bindings (name, execution_id, kind, value) VALUES ('{name}', -1, 'let', 'other')",
        "INSERT INTO bindings (name, kind, value) VALUES ('{name}', 'let', 'other')"
        " ON CONFLICT (run_id, name, coalesce(execution_id, -1)) DO UPDATE SET value = excluded.value",
        "UPDATE bindings SET value = 'other' WHERE name = '{name}'",
        "UPDATE OR REPLACE bindings SET value = NULL WHERE name = '{name}'",
        "UPDATE OR IGNORE bindings SET kind = 'let' WHERE name = '{name}'",
        "UPDATE bindings SET kind = NULL WHERE name = '{name}'",
        "UPDATE bindings SET name = 'elsewhere' WHERE name = '{name}'",
        "UPDATE bindings SET execution_id = 7 WHERE name = '{name}'",
        "UPDATE bindings SET run_id = 'another' WHERE name = '{name}'",
        "UPDATE bindings SET attachment_path = 'attachments/x.md' WHERE name = '{name}'",
        "PRAGMA recursive_triggers = ON; UPDATE bindings SET value = 'other' WHERE name = '{name}'",
        "BEGIN; UPDATE bindings SET value = 'new' WHERE name = 'draft'; UPDATE bindings SET value = 'other'; COMMIT",
    ],
)
def test_a_shell_binds_a_const_and_an_input_once(
    sqlite3_shell: Sqlite3, bound: None, file: Path, run_file: Store, run: str, name: str, sql: str
) -> None:
    before = values(file)
    told = sqlite3_shell.run(file, sql.format(name=name), "-bail")
    assert told.returncode != 0
    assert BOUND_ONCE in told.stderr
    assert values(file) == before
    assert run_file.programs.bindings.resolve(run, name).value == "as it was"


@each(
    "sql",
    [
        "INSERT OR REPLACE INTO bindings (name, kind, value, updated_at) VALUES ('topic', 'const', 'as it was', datetime('now'))",
        "UPDATE bindings SET updated_at = datetime('now'), source_statement = 'again' WHERE name = 'topic'",
        "ALTER TABLE bindings ADD COLUMN token_count INTEGER; UPDATE bindings SET token_count = 7",
        "INSERT OR REPLACE INTO bindings (name, execution_id, kind, value) VALUES ('topic', 7, 'let', 'of another frame')",
        "INSERT INTO bindings (run_id, name, kind, value) VALUES ('another', 'topic', 'let', 'of another run')",
        "INSERT OR REPLACE INTO bindings (name, kind, value) VALUES ('draft', 'const', 'from now on')",
    ],
)
def test_a_shell_may_do_what_changes_no_const(sqlite3_shell: Sqlite3, bound: None, file: Path, sql: str) -> None:
    told = sqlite3_shell.run(file, sql, "-bail")
    assert (told.returncode, told.stderr) == (0, "")


def test_older_rows_stay_and_are_read(
    run_file: Store, run: str, raw: sqlite3.Connection, file: Path, sqlite3_shell: Sqlite3
) -> None:
    put(raw, "old", "../../secret.md")
    with before_guards(raw):
        raw.execute("INSERT INTO execution (statement_text, metadata) VALUES ('x', 'not json')")
    for sql in (
        "UPDATE bindings SET source_statement = 'again', value = 'new'",
        "UPDATE execution SET status = 'failed'",
        "UPDATE bindings SET attachment_path = NULL",
        "UPDATE execution SET metadata = '{}'",
    ):
        assert sqlite3_shell.run(file, sql).returncode == 0, sql
    assert run_file.programs.bindings.resolve(run, "old").value == "new"
    assert [one.status for one in run_file.programs.executions.list(run)] == ["failed"]


@each(
    ("sql", "constraint"),
    [
        ("UPDATE bindings SET value = 'other' WHERE name = 'topic'", "bindings.kind"),
        ("UPDATE bindings SET attachment_path = '/etc/passwd' WHERE name = 'draft'", "bindings.attachment_path"),
        ("INSERT INTO execution (metadata) VALUES ('not json')", "execution.metadata"),
    ],
)
def test_the_library_says_what_the_database_refused(run_file: Store, bound: None, sql: str, constraint: str) -> None:
    def write() -> None:
        with run_file.begin() as tx, Verb(work_of(tx), "a statement of a host", writes=True):
            work_of(tx).select(text(sql))

    with pytest.raises(Conflict, match=constraint) as caught:
        write()
    assert caught.value.constraint == constraint


def triggers(file: Path) -> list[tuple[object, ...]]:
    return values(file, "SELECT name, sql FROM sqlite_master WHERE name LIKE 'persist_row_guard%' ORDER BY name")


def test_copies_and_backups_keep_the_guards_and_older_rows(
    run_file: Store, run: str, raw: sqlite3.Connection, bound: None, file: Path, tmp_path: Path, sqlite3_shell: Sqlite3
) -> None:
    put(raw, "old", "../../secret.md")
    with before_guards(raw):
        raw.execute("INSERT INTO execution (statement_text, metadata) VALUES ('x', 'not json')")
    with Store.open(f"sqlite:///{(tmp_path / 'copy.db').as_posix()}") as target:
        copy(run_file, target)
    backup(run_file, tmp_path / "backup.db")
    rows = values(file)
    for place in (tmp_path / "copy.db", tmp_path / "backup.db"):
        assert values(place) == rows
        assert triggers(place) == triggers(file)
        assert len(triggers(place)) == 37
        assert sqlite3_shell.run(place, "UPDATE bindings SET value = 'other' WHERE name = 'topic'").returncode != 0
        with open_run_file(place) as store:
            assert "attachment_escapes" in [one.code for one in audit(store, run)]


def test_what_was_set_aside_is_put_back_as_it_was(run_file: Store, raw: sqlite3.Connection, file: Path) -> None:
    """It is a row from before the guards, whoever brings it."""
    with before_guards(raw):
        raw.execute("INSERT INTO execution (statement_text, metadata) VALUES ('x', 'not json')")
    assert [one.fixed for one in doctor(run_file, fix=True) if one.code == "unreadable"] == [True]
    assert raw.execute("SELECT count(*) FROM execution").fetchone() == (0,)
    (kept,) = quarantined(run_file)
    restore_row(run_file, kept.id)
    assert raw.execute("SELECT metadata FROM execution").fetchall() == [("not json",)]
    assert len(triggers(file)) == 37


def test_a_rebuilt_run_has_its_consts_and_guards(
    run_file: Store, run: str, bound: None, raw: sqlite3.Connection, file: Path, tmp_path: Path
) -> None:
    put(raw, "old", "../../secret.md")
    run_file.switch_events(True)
    with Store.open(f"sqlite:///{(tmp_path / 'rebuilt.db').as_posix()}") as target:
        rebuild(run_file, target)
    assert values(tmp_path / "rebuilt.db") == values(file)
    assert triggers(tmp_path / "rebuilt.db") == triggers(file)
