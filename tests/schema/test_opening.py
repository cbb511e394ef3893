"""What opening a database costs, sets and refuses."""

import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import persist
from persist import Store
from persist.db.dialects.sqlite.connections import OWN_WAIT_MS
from persist.errors import SchemaTooNew
from persist.schema.metadata import HEAD
from persist.settings import Settings
from tests.schema.places import VERSION_TABLE, Place
from tests.schema.test_commands import environment
from tests.statement_log import seen_statements


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that reaches a database, whoever sends it, on connections that are opened after this."""
    return seen_statements(monkeypatch)


def at_version(place: Place, version: str) -> None:
    place.run(
        f"UPDATE {place.named(VERSION_TABLE)} SET version_num = '{version}'",
        f"UPDATE {place.named('_meta')} SET value = '{version}' WHERE key = 'schema_version'",
    )


def test_a_current_database_costs_one_statement(migrated: Place, sent: list[str]) -> None:
    Store.open(migrated.url).close()
    asked = [statement for statement in sent if VERSION_TABLE in statement]
    assert len(asked) == 1
    assert "_meta" in asked[0]
    # SQLAlchemy's own look at a new server, and on a file the one for pieces to fold, are all that may stand beside it
    assert [statement for statement in sent if "chat_" in statement and "chat_part_deltas" not in statement] == []
    assert [statement for statement in sent if "sqlite_master" in statement] == []


def test_a_current_file_costs_two_statements_on_one_connection(sqlite_url: str, sent: list[str]) -> None:
    Store.open(sqlite_url).close()
    sent.clear()
    Store.open(sqlite_url).close()
    assert [statement for statement in sent if VERSION_TABLE in statement] == sent[5:6]
    assert [statement for statement in sent if "chat_part_deltas" in statement] == sent[6:7]
    of_one_connection = ("busy_timeout", "synchronous", "foreign_keys", "wal_autocheckpoint", "trusted_schema")
    assert [statement.split("=")[0] for statement in sent[:5]] == [f"PRAGMA {name}" for name in of_one_connection]
    assert sent[7:] == ["PRAGMA journal_mode", "PRAGMA busy_timeout=10"]


@pytest.mark.parametrize("existing", [False, True], ids=["a new file", "a current file"])
def test_opening_a_file_does_not_import_alembic(sqlite_url: str, existing: bool) -> None:
    if existing:
        Store.open(sqlite_url).close()
    code = """
import sys, persist
with persist.Store.open(sys.argv[1]) as store, store.begin() as tx:
    tx.chat.sessions.create(agent="build", model={})
unwanted = {"alembic", "psycopg", "click", "rich", "pytest"} & set(sys.modules)
sys.exit(f"imported {unwanted}" if unwanted else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, sqlite_url], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_opening_postgres_does_not_import_alembic(postgres_url: str) -> None:
    code = """
import sys, persist
persist.Store.open(sys.argv[1]).close()
sys.exit("imported alembic" if "alembic" in sys.modules else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, postgres_url], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


PRAGMAS = ("journal_mode", "synchronous", "busy_timeout", "foreign_keys", "wal_autocheckpoint", "query_only")


def pragmas(driver: Any) -> list[Any]:
    return [driver.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS]


@pytest.mark.parametrize(
    ("settings", "synchronous"),
    [(Settings(), 1), (Settings(busy_timeout_ms=1234, wal_autocheckpoint=77, synchronous="full"), 2)],
    ids=["default", "given"],
)
def test_every_connection_has_its_pragmas(sqlite_url: str, settings: Settings, synchronous: int) -> None:
    Store.open(sqlite_url).close()
    theirs = ["wal", synchronous, settings.busy_timeout_ms, 1, settings.wal_autocheckpoint]
    ours = ["wal", synchronous, OWN_WAIT_MS, 1, settings.wal_autocheckpoint]  # the write lock is waited for by persist itself
    with Store.open(sqlite_url, settings=settings) as store:
        dialect = store.runtime.dialect
        with store.begin() as tx:
            assert pragmas(tx._work.transaction.driver) == [*ours, 0]
            session = tx.chat.sessions.create(agent="build", model={})
        with store.read() as tx:
            assert pragmas(tx._work.transaction.driver) == [*theirs, 1]
        with store.record(session.id) as recorder:
            recorder.feed({"type": "start"})
            assert pragmas(store.pinned._driver) == [*ours, 0]
        connections = [dialect.connections.writer.raw_connection() for _ in range(2)] + [
            dialect.connections.reader.raw_connection() for _ in range(3)
        ]
        for connection, query_only in zip(connections, [0, 0, 1, 1, 1], strict=True):
            assert pragmas(connection.driver_connection) == [*(theirs if query_only else ours), query_only]
            connection.close()


def test_what_a_verb_needs_for_a_moment_is_no_file_and_what_vacuum_needs_is(sqlite_url: str) -> None:
    def in_memory(driver: Any) -> bool:
        return bool(driver.execute("PRAGMA temp_store").fetchone()[0] == 2)

    with Store.open(sqlite_url) as store:
        with store.begin() as tx:
            assert in_memory(tx._work.transaction.driver)
            session = tx.chat.sessions.create(agent="build", model={})
        with store.record(session.id) as recorder:
            recorder.feed({"type": "start"})
            assert in_memory(store.pinned._driver)
        connections: Any = store.runtime.dialect.connections
        with connections.waiting_inside() as driver:
            assert not in_memory(driver)
        with store.begin() as tx:
            assert in_memory(tx._work.transaction.driver)


def test_a_read_only_store_cannot_write(sqlite_url: str) -> None:
    Store.open(sqlite_url).close()
    with Store.open(sqlite_url, read_only=True) as store:
        for engine in (store.runtime.connections.writer, store.runtime.connections.reader):
            connection = engine.raw_connection()
            assert pragmas(connection.driver_connection) == ["wal", 1, 5000, 1, 1000, 1]
            connection.close()
        with pytest.raises(persist.ReadOnlyTransaction), store.begin():
            pass


def test_a_file_in_another_journal_mode_is_switched(sqlite_url: str) -> None:
    place = Place(sqlite_url)
    Store.open(sqlite_url).close()
    assert place.ask("PRAGMA journal_mode=DELETE") == [("delete",)]
    Store.open(sqlite_url).close()
    assert place.ask("PRAGMA journal_mode") == [("wal",)]


def test_a_newer_database_is_refused_untouched(migrated: Place) -> None:
    at_version(migrated, "9999")
    before = migrated.catalog(), migrated.rows()
    content = None if migrated.is_postgres else migrated.path.read_bytes()
    for use in (Store.open, persist.upgrade, persist.check):
        with pytest.raises(persist.SchemaTooNew) as caught:
            use(migrated.url)
        assert (caught.value.found, caught.value.known) == ("9999", HEAD)
    assert content is None or migrated.path.read_bytes() == content
    assert (migrated.catalog(), migrated.rows()) == before
    assert persist.current(migrated.url) == "9999"


def test_a_newer_database_may_be_read(migrated: Place) -> None:
    with Store.open(migrated.url, migrate=True) as store, store.begin() as tx:
        id = tx.chat.sessions.create(agent="build", model={}).id
    at_version(migrated, "9999")
    content = None if migrated.is_postgres else migrated.path.read_bytes()
    with Store.open(migrated.url, read_only=True) as store, store.read() as tx:
        assert tx.chat.sessions.get(id).agent == "build"
    assert content is None or migrated.path.read_bytes() == content


def test_postgres_without_tables_is_outdated(empty_postgres_url: str) -> None:
    secret = empty_postgres_url.replace("postgres@", "postgres:very-secret@")
    assert secret != empty_postgres_url
    for use in (Store.open, persist.check):
        with pytest.raises(persist.SchemaOutdated) as caught:
            use(secret)
        error = caught.value
        assert (error.found, error.known) == (None, HEAD)
        *command, url = shlex.split(error.command)
        assert command == ["persist", "upgrade", "--url"]
        assert url.startswith("postgresql://postgres:***@")
        assert "very-secret" not in f"{error}{error!r}{error.command}{vars(error)}"
    assert Place(empty_postgres_url).ask("SELECT 1 FROM pg_namespace WHERE nspname = 'persist'") == []


def test_the_command_names_another_schema(empty_postgres_url: str) -> None:
    with pytest.raises(persist.SchemaOutdated) as caught:
        Store.open(empty_postgres_url, schema="agents")
    assert caught.value.command.endswith(" --schema agents")


def test_a_new_file_is_not_made_when_told_so(sqlite_url: str) -> None:
    with pytest.raises(persist.SchemaOutdated) as caught:
        Store.open(sqlite_url, migrate=False)
    assert (caught.value.found, caught.value.known) == (None, HEAD)
    assert shlex.split(caught.value.command) == ["persist", "upgrade", "--url", sqlite_url]
    assert not Place(sqlite_url).path.exists()


def test_what_a_database_in_memory_needs() -> None:
    """No command of a shell could do it, and none is named."""
    for url in ("sqlite:///", "sqlite:///:memory:"):
        with pytest.raises(persist.SchemaOutdated) as caught:
            Store.open(url, migrate=False)
        assert "persist.upgrade(engine)" in caught.value.command
        assert "sqlite:///state.db" in caught.value.command
        assert "None" not in str(caught.value)


def test_a_file_without_tables_is_outdated_when_told_so(sqlite_url: str) -> None:
    place = Place(sqlite_url)
    place.path.touch()
    with pytest.raises(persist.SchemaOutdated):
        Store.open(sqlite_url, migrate=False)
    assert place.catalog() == set()


def test_a_missing_file_is_not_found_when_read_only(sqlite_url: str) -> None:
    with pytest.raises(persist.NotFound):
        Store.open(sqlite_url, read_only=True)
    assert not Place(sqlite_url).path.exists()


def test_an_empty_file_is_filled(sqlite_url: str) -> None:
    Place(sqlite_url).path.touch()
    Store.open(sqlite_url).close()
    persist.check(sqlite_url)


def test_tables_of_ours_without_a_version_are_left_alone(migrated: Place) -> None:
    migrated.run(f"DROP TABLE {migrated.named(VERSION_TABLE)}")
    before = migrated.catalog()
    content = None if migrated.is_postgres else migrated.path.read_bytes()
    for use in (Store.open, persist.upgrade, persist.check):
        with pytest.raises(persist.UnmanagedDatabase) as caught:
            use(migrated.url)
        assert "chat_sessions" in caught.value.tables
    assert content is None or migrated.path.read_bytes() == content
    assert migrated.catalog() == before


def test_one_table_with_a_name_of_ours_is_enough(sqlite_url: str) -> None:
    place = Place(sqlite_url)
    place.run("CREATE TABLE chat_sessions (id INTEGER PRIMARY KEY)", "INSERT INTO chat_sessions VALUES (7)")
    for use in (Store.open, persist.upgrade):
        with pytest.raises(persist.UnmanagedDatabase) as caught:
            use(sqlite_url)
        assert caught.value.tables == ["chat_sessions"]
    assert place.ask("SELECT name FROM sqlite_master WHERE type = 'table'") == [("chat_sessions",)]
    assert place.ask("SELECT id FROM chat_sessions") == [(7,)]


def test_no_database_at_all_is_corrupt(sqlite_url: str) -> None:
    path = Place(sqlite_url).path
    path.write_bytes(b"a letter to a friend\n" * 100)
    uses: list[Callable[[str], object]] = [Store.open, persist.upgrade, persist.check, persist.current]
    for use in uses:
        with pytest.raises(persist.StoreCorrupt):
            use(sqlite_url)
    assert path.read_bytes() == b"a letter to a friend\n" * 100


def test_where_persist_never_was(empty_database: Callable[[], Place], tmp_path: Path) -> None:
    place = empty_database()
    if not place.is_postgres:
        place.path.touch()
    assert persist.current(place.url) is None


def test_a_refused_file_keeps_every_byte_even_its_journal_mode(tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    Store.open(f"sqlite:///{path}").close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("UPDATE persist_alembic_version SET version_num = '9999'")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew):
        Store.open(f"sqlite:///{path}")
    assert path.read_bytes() == before
