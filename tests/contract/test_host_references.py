"""Foreign keys over connections of hosts: SQLite checks none there unless the host says so, and the rows end alike."""

import asyncio
import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

import persist
from persist import AppArtifactKey as ArtifactKey
from persist import AsyncStore, InvalidValue, PersistError, Store
from persist.maintenance import doctor, erase, prune, quarantined, restore_row
from persist.maintenance.pruning import PRUNINGS
from persist.schema.metadata import metadata
from persist.testing import FrozenClock
from tests.contract.chat.scenes import MODEL
from tests.maintenance.pruning_scenes import everything
from tests.seeded_databases import Prepared

Rows = dict[str, list[Any]]
KEYS = [
    (table.name, key.column_keys, key.referred_table.name, key.ondelete)
    for table in metadata.sorted_tables
    for key in sorted(table.foreign_key_constraints, key=lambda key: [*key.column_keys])
    if key.info.get("dialect", "sqlite") == "sqlite"
]
TABLES = {table.name: table for table in metadata.sorted_tables}
CASCADING = {parent for _, _, parent, action in KEYS if action == "CASCADE"}

VERBS: Mapping[str, Callable[[Any, Mapping[str, Any]], object]] = {
    "app_artifacts": lambda tx, row: tx.app_sessions.artifacts.delete(
        ArtifactKey(row["app_name"], row["user_id"], row["session_id"] or None, row["filename"])
    ),
    "agent_task_records": lambda tx, row: tx.agent_tasks.tasks.delete(row["owner"], row["task_id"]),
    "app_user_sessions": lambda tx, row: tx.app_sessions.sessions.delete(row["app_name"], row["user_id"], row["session_id"]),
    "blobs": lambda tx, row: tx.blobs.delete(row["sha256"]),
    "branches": lambda tx, row: tx.conversations.branches.delete(row["id"]),
    "chat_messages": lambda tx, row: tx.chat.messages.delete(row["id"]),
    "chat_sessions": lambda tx, row: tx.chat.sessions.delete(row["id"]),
    "checkpoint_threads": lambda tx, row: tx.checkpoints.threads.delete(row["id"]),
    "history_records": lambda tx, row: tx.histories.records.delete(row["id"]),
    "history_runs": lambda tx, row: tx.histories.runs.delete(row["id"]),
    "memories": lambda tx, row: tx.checkpoints.memories.delete(tuple(row["namespace"].split(".")), row["key"]),
    "messages": lambda tx, row: tx.conversations.messages.delete(row["id"]),
    "replay_sessions": lambda tx, row: tx.replay_streams.sessions.delete(row["id"]),
    "sessions": lambda tx, row: tx.conversations.sessions.delete(row["id"]),
    "transcript_sessions": lambda tx, row: tx.transcripts.sessions.delete(row["project"], row["session_id"]),
    "usage_budgets": lambda tx, row: tx.usage.budgets.delete(row["key"], row["period"]),
    "workflow_limits": lambda tx, row: tx.workflows.limits.delete(row["key"]),
}
"""What deletes a row of these tables, with all that belongs to it."""
WITHOUT_VERB = {"progressions", "workflow_runs", "chat_parts"}
"""Rows that have others below them and go with something else, or by a prune."""


@contextmanager
def host(url: str, *, checked: bool) -> Iterator[Engine]:
    """A host's engine whose connections check foreign keys or do not."""
    engine = create_engine(url)
    if checked:
        persist.prepare_engine(engine)

    @event.listens_for(engine, "connect")
    def begin_by_hand(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    yield engine
    engine.dispose()


def rows_of(connection: Connection) -> Rows:
    """Every row of every table, without what a table of notes says of who wrote."""
    return {
        table.name: sorted(map(repr, connection.exec_driver_sql(f"SELECT * FROM {table.name}")))
        for table in metadata.sorted_tables
        if table.name != "_meta"
    }


def outcome(connection: Connection, do: Callable[[], object]) -> tuple[Any, Rows]:
    """What came of it, and the rows afterwards, in a transaction that is rolled back."""
    try:
        try:
            result: Any = ("done", do())
        except PersistError as error:
            result = (type(error), str(error), getattr(error, "constraint", None))
        return result, rows_of(connection)
    finally:
        connection.rollback()


@pytest.fixture
def full(prepared: Prepared, tmp_path: Path) -> Iterator[str]:
    """A file with something in every table, and a turn that somebody began."""
    with prepared.lend(everything, "sqlite", tmp_path) as url:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw, raw:
            raw.execute(
                "INSERT INTO chat_turns (session_id, state, owner, started_at, seen_at) SELECT id, 'error', '', 0, 0"
                " FROM chat_sessions"
            )
            raw.execute(
                "INSERT INTO chat_part_deltas (part_id, seq, created_at, delta) SELECT id, 1000, 0, 'more' FROM chat_parts"
            )
        yield url


@pytest.fixture
def both(full: str, clock: FrozenClock) -> Iterator[Callable[..., None]]:
    """Does something with a filled file over a connection that checks foreign keys and one that does not: all ends alike."""
    with (
        host(full, checked=True) as checking,
        host(full, checked=False) as unchecked,
        Store.from_engine(checking, clock=clock) as store,
        checking.connect() as on,
        unchecked.connect() as off,
    ):

        def check(do: Callable[[Connection, Store], object], *, refused: bool = False) -> None:
            expected, found = (outcome(connection, lambda c=connection: do(c, store)) for connection in (on, off))  # type: ignore[misc]  # bound at once
            assert found == expected
            assert not refused or "FOREIGN KEY" in str(found[0])

        yield check


def test_every_verb_that_deletes_leaves_what_it_leaves_where_foreign_keys_are_checked(
    both: Callable[..., None], full: str
) -> None:
    assert VERBS.keys() | WITHOUT_VERB >= CASCADING
    with closing(sqlite3.connect(full.removeprefix("sqlite:///"))) as raw:
        raw.row_factory = sqlite3.Row
        found = {table: [dict(row) for row in raw.execute(f"SELECT * FROM {table} LIMIT 3")] for table in VERBS}
    assert all(found.values()), found
    for table, rows in found.items():
        for row in rows:
            both(partial(delete_row, table, row))


def delete_row(table: str, row: Mapping[str, Any], connection: Connection, store: Store) -> object:
    return VERBS[table](store.join(connection), row)


def lose_parent(child: str, columns: Sequence[str], connection: Connection, store: Store) -> object:
    """Let a row refer to a parent that is not there."""
    store.join(connection).chat.prompts.put("a write")
    key = [column.name for column in TABLES[child].primary_key]
    first = connection.exec_driver_sql(f"SELECT {', '.join(key)} FROM {child} LIMIT 1").one()
    named, this = ", ".join(f"{name} = 'nobody'" for name in columns), " AND ".join(f"{name} = ?" for name in key)
    return change(connection, f"UPDATE {child} SET {named} WHERE {this}", *first)


def delete_all(parent: str, connection: Connection, store: Store) -> object:
    store.join(connection).chat.prompts.put("a write")
    return change(connection, f"DELETE FROM {parent}")


def test_every_foreign_key_is_kept(both: Callable[..., None]) -> None:
    for child, columns, parent, _ in KEYS:
        both(partial(lose_parent, child, columns), refused=True)
        if child != parent:
            both(partial(delete_all, parent))


def change(connection: Connection, statement: str, *values: Any) -> object:
    try:
        return connection.exec_driver_sql(statement, values).rowcount
    except Exception as error:
        return str(getattr(error, "orig", error))


def test_nothing_of_a_session_that_a_host_deleted_is_in_the_next_one_of_its_id(sqlite_url: str) -> None:
    persist.upgrade(sqlite_url)
    with host(sqlite_url, checked=False) as engine, Store.from_engine(engine) as store:
        for begin in (engine.begin, store.begin):
            with begin() as opened:
                tx = store.join(opened) if isinstance(opened, Connection) else opened
                session = tx.chat.sessions.create(agent="build", model=MODEL, owner="maria")
                tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "a secret"}])
            with store.record(session.id) as recorder:
                recorder.feed_many(
                    [{"type": "start"}, {"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "x"}]
                )
            with begin() as opened:
                tx = store.join(opened) if isinstance(opened, Connection) else opened
                tx.chat.sessions.delete(session.id)
                tx.chat.sessions.create(id=session.id, agent="build", model=MODEL, owner="peter")
                assert tx.chat.messages.list(session.id) == []
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM pragma_foreign_key_check").scalar() == 0


def test_a_parent_that_is_not_there_is_the_same_error(sqlite_url: str) -> None:
    persist.upgrade(sqlite_url)
    found = []
    for checked in (True, False):
        with host(sqlite_url, checked=checked) as engine, Store.from_engine(engine) as store, engine.begin() as connection:
            with pytest.raises(PersistError) as refused:
                store.join(connection).chat.messages.append("nobody", role="user", parts=[])
            found.append((type(refused.value), str(refused.value)))
    assert found[0] == found[1]


def test_a_rollback_takes_nothing_that_later_verbs_need(sqlite_url: str) -> None:
    persist.upgrade(sqlite_url)
    with host(sqlite_url, checked=False) as engine, Store.from_engine(engine) as store, engine.connect() as connection:
        for keep in (False, True):
            session = store.join(connection).chat.sessions.create(agent="build", model=MODEL)
            store.join(connection).chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "hi"}])
            store.join(connection).chat.sessions.delete(session.id)
            assert connection.exec_driver_sql("SELECT count(*) FROM chat_parts").scalar() == 0
            (connection.commit if keep else connection.rollback)()


def test_a_connection_that_checks_is_asked_once(sqlite_url: str) -> None:
    persist.upgrade(sqlite_url)
    asked: list[str] = []
    with host(sqlite_url, checked=True) as engine, Store.from_engine(engine) as store, engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        driver.set_trace_callback(asked.append)
        for _ in range(3):
            store.join(connection).chat.sessions.create(agent="build", model=MODEL)
        assert sum("pragma_foreign_keys" in statement for statement in asked) == 1
        assert not any("TRIGGER" in statement for statement in asked)


def test_one_warning_names_what_prepares_an_engine(sqlite_url: str, caplog: pytest.LogCaptureFixture) -> None:
    persist.upgrade(sqlite_url)
    caplog.set_level(logging.WARNING, "persist")
    for checked, warnings in ((False, 1), (True, 0)):
        caplog.clear()
        with Store.open(sqlite_url) as store, host(sqlite_url, checked=checked) as engine:
            Store.from_engine(engine).close()
            for _ in range(2):
                with engine.begin() as connection:
                    store.join(connection).chat.sessions.create(agent="build", model=MODEL)
        assert sum("persist.prepare_engine" in record.message for record in caplog.records) == warnings


def test_an_engine_that_is_prepared(sqlite_url: str) -> None:
    engine, asynchronous = create_engine(sqlite_url), create_async_engine(sqlite_url.replace("sqlite:", "sqlite+aiosqlite:"))
    for given in (engine, engine, asynchronous, create_engine("postgresql+psycopg://nowhere/x")):
        persist.prepare_engine(given)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    engine.dispose()

    async def ask() -> object:
        async with asynchronous.connect() as connection:
            found = (await connection.exec_driver_sql("PRAGMA foreign_keys")).scalar()
        await asynchronous.dispose()
        return found

    assert asyncio.run(ask()) == 1
    with pytest.raises(InvalidValue):
        persist.prepare_engine("sqlite:///x.db")


async def _join_asynchronously(url: str) -> int:
    engine = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
    async with await AsyncStore.open(url) as store, engine.connect() as connection:
        tx = store.join(connection)
        session = await tx.chat.sessions.create(agent="build", model=MODEL)
        await tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "hi"}])
        await tx.chat.sessions.delete(session.id)
        left = (await connection.exec_driver_sql("SELECT count(*) FROM chat_messages")).scalar()
        await connection.commit()
    await engine.dispose()
    assert isinstance(left, int)
    return left


def test_connections_of_asynchronous_drivers(sqlite_url: str) -> None:
    assert asyncio.run(_join_asynchronously(sqlite_url)) == 0


def test_prunes_and_erasures_over_an_engine_that_checks_nothing(full: str, tmp_path: Path) -> None:
    clock = FrozenClock()
    clock.advance(delta=timedelta(days=40))
    found = []
    for checked in (True, False):
        path = tmp_path / f"{checked}.db"
        shutil.copyfile(full.removeprefix("sqlite:///"), path)
        with host(f"sqlite:///{path}", checked=checked) as engine, Store.from_engine(engine, clock=clock) as store:
            store.runtime.sleep = lambda seconds: None
            reports: list[Any] = [erase(store, owner="maria").tables]
            reports += [prune(store, domain, older_than=timedelta(days=1)).tables for domain in PRUNINGS]
            with engine.connect() as connection:
                rows = {table: len(some) for table, some in rows_of(connection).items()}
                assert connection.exec_driver_sql("SELECT count(*) FROM pragma_foreign_key_check").scalar() == 0
            found.append((reports, rows))
    assert found[0] == found[1]


def test_the_quarantine_brings_back_what_it_brings_back_where_references_are_checked(sqlite_url: str, clock: FrozenClock) -> None:
    persist.upgrade(sqlite_url)
    with host(sqlite_url, checked=False) as engine, Store.from_engine(engine, clock=clock) as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="build", model=MODEL)
            message = tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": "hi"}])
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw, raw:
            raw.execute("UPDATE chat_messages SET session_id = CAST(x'ff' AS TEXT)")
        doctor(store, fix=True)
        (group,) = [entry.id for entry in quarantined(store) if entry.table == "chat_messages"]
        restore_row(store, group)
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT id FROM chat_messages").scalar() == message.id
