"""The revisions, the models' own DDL and persist.upgrade make the same tables and seed rows, on both databases."""

from collections.abc import Callable

import psycopg
import pytest
from alembic import command
from sqlalchemy import insert
from sqlalchemy.schema import CreateSequence

import persist
from persist import Store
from persist.db.dialects.backends import dialect_for
from persist.db.statements.schema_version import version_table
from persist.events.models import event_positions
from persist.schema.metadata import HEAD, metadata
from persist.schema.opening import ddl
from persist.settings import Settings
from persist.testing import FrozenClock
from tests.distributed_server import takes_triggers
from tests.schema.catalog import sqlite_catalog, table_clauses
from tests.schema.places import Place, repository_config


def by_alembic(place: Place) -> None:
    command.upgrade(repository_config(place.url), "head")


def by_persist_upgrade(place: Place) -> None:
    persist.upgrade(place.url)


def by_models(place: Place) -> None:
    """What opening a new SQLite file runs; on Postgres nothing of ours runs it, so that it is run here."""
    if not place.is_postgres:
        persist.Store.open(place.url).close()
        return
    place.create_schema()
    guarded = takes_triggers(place.url)
    dialect = dialect_for(place.url, Settings())
    with dialect.connections.writer.begin() as connection:
        for statement in ddl(dialect):
            if guarded or not statement.startswith("CREATE TRIGGER"):
                connection.exec_driver_sql(statement)
        connection.execute(CreateSequence(event_positions))
        for table in metadata.sorted_tables:
            for row in table.info.get("seed", ()):
                connection.execute(insert(table), row)
        connection.execute(insert(version_table), {"version_num": HEAD})
    dialect.connections.dispose()


@pytest.mark.parametrize("make", [by_alembic, by_persist_upgrade])
def test_revisions_make_what_the_models_say(make: Callable[[Place], None], empty_database: Callable[[], Place]) -> None:
    expected, found = empty_database(), empty_database()
    by_models(expected)
    make(found)
    assert found.catalog() ^ expected.catalog() == set()
    assert found.rows() == expected.rows()
    assert expected.rows("_meta")["_meta"] == [("'schema_version'", repr(HEAD))]


def test_every_table_of_the_models_is_in_the_catalog(migrated: Place) -> None:
    tables = {fact[1] for fact in migrated.catalog() if fact[0] == "table"}
    assert tables >= {*(table.name for table in metadata.sorted_tables), "persist_alembic_version"}


def test_a_new_file_can_be_upgraded_again(sqlite_url: str) -> None:
    place = Place(sqlite_url)
    by_models(place)
    before = place.catalog(), place.rows()
    by_persist_upgrade(place)
    by_alembic(place)
    assert (place.catalog(), place.rows()) == before


# What a difference looks like: every change below must be seen, also those that Alembic's own check misses.

POSTGRES_CHANGES = {
    "partial predicate": [
        "DROP INDEX persist.ix_chat_parts_compaction_of_session",
        "CREATE INDEX ix_chat_parts_compaction_of_session ON persist.chat_parts (session_id, type) WHERE type = 'data-other'",
    ],
    "partial predicate gone": [
        "DROP INDEX persist.ix_chat_parts_compaction_of_session",
        "CREATE INDEX ix_chat_parts_compaction_of_session ON persist.chat_parts (session_id, type)",
    ],
    "CHECK dropped": ["ALTER TABLE persist.chat_messages DROP CONSTRAINT ck_chat_messages_role"],
    "CHECK widened": [
        "ALTER TABLE persist.chat_messages DROP CONSTRAINT ck_chat_messages_role",
        "ALTER TABLE persist.chat_messages ADD CONSTRAINT ck_chat_messages_role CHECK (role IN ('user', 'assistant'))",
    ],
    "default changed": ["ALTER TABLE persist.chat_sessions ALTER permissions_json SET DEFAULT '{}'"],
    "default dropped": ["ALTER TABLE persist.chat_sessions ALTER prompt_tokens DROP DEFAULT"],
    "collation changed": ['ALTER TABLE persist.chat_sessions ALTER agent TYPE text COLLATE "default"'],
    "type narrowed": ['ALTER TABLE persist.chat_sessions ALTER agent TYPE varchar(10) COLLATE "C"'],
    "NOT NULL dropped": ["ALTER TABLE persist.chat_sessions ALTER agent DROP NOT NULL"],
    "foreign key changed": [
        "ALTER TABLE persist.chat_messages DROP CONSTRAINT fk_chat_messages_session_id",
        "ALTER TABLE persist.chat_messages ADD CONSTRAINT fk_chat_messages_session_id"
        " FOREIGN KEY (session_id) REFERENCES persist.chat_sessions (id)",
    ],
    "not unique any more": [
        "DROP INDEX persist.ix_chat_parts_message_id_index",
        'CREATE INDEX ix_chat_parts_message_id_index ON persist.chat_parts (message_id, "index")',
    ],
    "index order": [
        "DROP INDEX persist.ix_chat_sessions_updated_at_id",
        "CREATE INDEX ix_chat_sessions_updated_at_id ON persist.chat_sessions (updated_at DESC, id)",
    ],
    "index gone": ["DROP INDEX persist.ix_chat_parts_session_id"],
    "column gone": ["ALTER TABLE persist.chat_sessions DROP COLUMN workspace_root"],
    "trigger gone": ["DROP TRIGGER persist_row_guard_bindings_kind_update ON persist.bindings"],
    "trigger switched off": ["ALTER TABLE persist.bindings DISABLE TRIGGER persist_row_guard_bindings_kind_update"],
    "function of a trigger changed": [
        "CREATE OR REPLACE FUNCTION persist.persist_row_guard_bindings() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN RETURN NEW; END $$"
    ],
    "table added": ["CREATE TABLE persist.stranger (id text)"],
}


ON_ONE_SERVER = {"trigger gone", "trigger switched off"}
CHANGES = [pytest.param(name, marks=[pytest.mark.one_server] * (name in ON_ONE_SERVER)) for name in POSTGRES_CHANGES]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_on_postgres(change: str, postgres_url: str) -> None:
    place = Place(postgres_url)
    before = place.catalog()
    place.run(*POSTGRES_CHANGES[change])
    assert place.catalog() != before


SQLITE_CHANGES = {
    "partial predicate": ("ix_chat_parts_compaction_of_session", "data-compaction", "data-other"),
    "partial predicate gone": ("ix_chat_parts_compaction_of_session", "WHERE type = 'data-compaction'", ""),
    "CHECK dropped": ("chat_messages", "CONSTRAINT ck_chat_messages_role CHECK (role IN ('user', 'assistant', 'system')), ", ""),
    "CHECK widened": ("chat_messages", "'assistant', 'system'", "'assistant', 'system', 'tool'"),
    "default changed": ("chat_sessions", "DEFAULT '[]'", "DEFAULT '{}'"),
    "default dropped": ("chat_sessions", "permissions_json TEXT DEFAULT '[]'", "permissions_json TEXT"),
    "collation changed": ("chat_sessions", "agent TEXT NOT NULL", "agent TEXT COLLATE NOCASE NOT NULL"),
    "type changed": ("chat_sessions", "agent TEXT", "agent JSON"),
    "NOT NULL dropped": ("chat_sessions", "agent TEXT NOT NULL", "agent TEXT"),
    "foreign key changed": ("chat_messages", " ON DELETE CASCADE", ""),
    "rowid table": ("chat_turns", " WITHOUT ROWID", ""),
    "not unique any more": ("ix_chat_parts_message_id_index", "UNIQUE ", ""),
    "trigger changed": ("persist_row_guard_bindings_insert", "'const', 'input'", "'const'"),
    "index order": ("ix_chat_sessions_updated_at_id", "(updated_at, id)", "(updated_at DESC, id)"),
}


@pytest.mark.parametrize("change", SQLITE_CHANGES)
def test_a_change_is_seen_on_sqlite(change: str, sqlite_url: str) -> None:
    name, old, new = SQLITE_CHANGES[change]
    place = Place(sqlite_url)
    persist.upgrade(sqlite_url)
    before = place.catalog()
    ((definition,),) = place.ask(f"SELECT sql FROM sqlite_master WHERE name = '{name}'")
    squeezed = " ".join(definition.split())
    assert old in squeezed, squeezed
    changed = squeezed.replace(old, new).replace("'", "''")
    place.run("PRAGMA writable_schema = ON", f"UPDATE sqlite_master SET sql = '{changed}' WHERE name = '{name}'")
    assert place.catalog() != before


def test_space_is_no_change_on_sqlite(sqlite_url: str) -> None:
    place = Place(sqlite_url)
    persist.upgrade(sqlite_url)
    before = place.catalog()
    ((definition,),) = place.ask("SELECT sql FROM sqlite_master WHERE name = 'chat_messages'")
    spread = "\n  ".join(definition.split(" ")).replace("'", "''")
    place.run("PRAGMA writable_schema = ON", f"UPDATE sqlite_master SET sql = '{spread}' WHERE name = 'chat_messages'")
    assert place.catalog() == before


def test_a_column_reads_the_same_created_or_added(sqlite_url: str) -> None:
    place = Place(sqlite_url)
    place.run("CREATE TABLE a (x INTEGER NOT NULL, y TEXT DEFAULT 'a, (b' NOT NULL, CHECK (x IN (1, 2)))")
    created = {fact[2] for fact in sqlite_catalog(str(place.path))}
    place.run("DROP TABLE a", "CREATE TABLE a (x INTEGER NOT NULL, CHECK (x IN (1, 2)))")
    place.run("ALTER TABLE a ADD COLUMN y TEXT DEFAULT 'a, (b' NOT NULL")
    assert {fact[2] for fact in sqlite_catalog(str(place.path))} == created
    assert created == {"x INTEGER NOT NULL", "CHECK (x IN (1, 2))", "y TEXT DEFAULT 'a, (b' NOT NULL", "options: "}


def test_what_is_no_table_has_no_clauses() -> None:
    with pytest.raises(ValueError, match="not a CREATE TABLE"):
        table_clauses("CREATE TABLE broken (x INTEGER")


# Every table has an identity: where all are published, as for logical replication, rows can still be changed and deleted.


_KEYLESS = """
    SELECT c.relname::text FROM pg_class c
    WHERE c.relnamespace = 'persist'::regnamespace AND c.relkind = 'r' AND c.relreplident = 'd'
      AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)"""


@pytest.fixture
def published(postgres_url: str) -> Place:
    """A database with a publication of all of our tables."""
    place = Place(postgres_url)
    place.run("CREATE PUBLICATION moving FOR ALL TABLES")
    return place


def test_a_value_is_bound_a_second_time_and_unbound(published: Place, clock: FrozenClock) -> None:
    with Store.open(published.url, clock=clock) as store:
        with store.begin() as tx:
            run = tx.programs.runs.create(program_path="deploy.prose")
            tx.programs.bindings.bind(run.id, "goal", "small")
        with store.begin() as tx:
            tx.programs.bindings.bind(run.id, "goal", "large")
        with store.read() as tx:
            bound = tx.programs.bindings.get(run.id, "goal")
    assert bound is not None
    assert bound.value == "large"
    published.run("DELETE FROM persist.bindings")
    assert published.ask("SELECT * FROM persist.bindings") == []


def test_without_an_identity_the_server_refuses(published: Place, clock: FrozenClock) -> None:
    """The test above shows something: the server refuses such an update of a published table."""
    with Store.open(published.url, clock=clock) as store, store.begin() as tx:
        run = tx.programs.runs.create(program_path="deploy.prose")
        tx.programs.bindings.bind(run.id, "goal", "small")
    published.run("ALTER TABLE persist.bindings REPLICA IDENTITY DEFAULT")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="replica identity"):
        published.run("UPDATE persist.bindings SET value = 'large'")


def test_every_table_has_an_identity(postgres_url: str) -> None:
    assert Place(postgres_url).ask(_KEYLESS) == []
