"""Tables made, and looked at, through an engine or a connection of the host's, whatever its pool and its way to connect."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, NullPool, StaticPool, create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine

import persist
from persist import InvalidValue, MigrationFailed, SchemaOutdated, Store, UnmanagedDatabase, UnsupportedEngine
from persist.schema.metadata import HEAD
from tests.schema.places import Place

KINDS = ["default", "static", "null", "creator", "autocommit", "own begin"]
on_every_kind = pytest.mark.parametrize(
    ("backend", "engine"),
    [(backend, kind) for backend in ("sqlite", "postgres") for kind in KINDS if (backend, kind) != ("postgres", "own begin")],
    indirect=["engine"],
)
"""Hosts begin transactions themselves where Python's sqlite3 would do it otherwise; on Postgres that is the default engine."""


@pytest.fixture
def place(empty_database: Callable[[], Place]) -> Place:
    return empty_database()


@pytest.fixture
def engine(request: pytest.FixtureRequest, place: Place) -> Iterator[Engine]:
    kind, url = str(request.param), place.url.replace("postgresql://", "postgresql+psycopg://")
    options: dict[str, Any] = {}
    if kind == "creator":  # as where a token is made for each connection; the URL says nothing then
        options = {"creator": partial(psycopg.connect, place.url) if place.is_postgres else partial(sqlite3.connect, place.path)}
        url = url.partition("://")[0] + "://"
    if kind == "autocommit":
        options["isolation_level"] = "AUTOCOMMIT"
    if kind in ("static", "null"):
        options["poolclass"] = StaticPool if kind == "static" else NullPool
    made = create_engine(url, **options)
    if kind == "own begin":

        @event.listens_for(made, "connect")
        def configure(connection: Any, _: Any) -> None:
            connection.isolation_level = None

        @event.listens_for(made, "begin")
        def begin(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN")

    yield made
    made.dispose()


@on_every_kind
def test_an_engine(engine: Engine, place: Place) -> None:
    assert persist.current(engine) is None
    with pytest.raises(SchemaOutdated):
        persist.check(engine)
    for _ in range(2):
        persist.upgrade(engine)
        assert persist.current(engine) == persist.current(place.url) == HEAD
        persist.check(engine)
    with Store.from_engine(engine) as store, store.begin() as tx:
        tx.chat.sessions.create(agent="build", model={})
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1


def test_a_file_in_memory_that_only_its_engine_knows() -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    persist.upgrade(engine)
    with Store.from_engine(engine) as store:
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="build", model={})
        with store.read() as tx:
            assert tx.chat.sessions.get(session.id) == session
    engine.dispose()


@on_every_kind
@pytest.mark.parametrize("commits", [True, False])
def test_a_connection_commits_when_the_host_does(engine: Engine, place: Place, commits: bool) -> None:
    if engine.dialect._on_connect_isolation_level == "AUTOCOMMIT":
        with engine.connect() as connection, pytest.raises(InvalidValue, match="AUTOCOMMIT"):
            persist.upgrade(connection)
        assert persist.current(place.url) is None
        return
    with engine.connect() as connection:
        if place.is_postgres:
            connection.execute(text("SET LOCAL search_path = 'public'"))
        connection.execute(text("CREATE TABLE host (note TEXT)"))
        assert persist.current(connection) is None
        persist.upgrade(connection)
        persist.upgrade(connection)
        persist.check(connection)
        assert persist.current(connection) == HEAD
        connection.execute(text("INSERT INTO host VALUES ('after')"))
        if place.is_postgres:
            assert connection.execute(text("SHOW search_path")).scalar() == "public"
            assert connection.execute(text("SHOW lock_timeout")).scalar() == "0"
        (connection.commit if commits else connection.rollback)()
    assert persist.current(place.url) == (HEAD if commits else None)
    if commits:
        assert place.ask("SELECT note FROM host") == [("after",)]


@on_every_kind
def test_looking_leaves_a_connection_as_it_was(engine: Engine) -> None:
    with engine.connect() as connection:
        assert persist.current(connection) is None
        assert not connection.in_transaction()
        assert not connection.get_execution_options().get("schema_translate_map")


def test_an_upgrade_that_fails_leaves_the_transaction_of_the_host(place: Place, plant: Callable[..., list[str]]) -> None:
    plant("op.execute('CREATE TABLE half (a TEXT)')\nop.execute('nonsense')")
    engine = create_engine(place.url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE host (note TEXT)"))
        with pytest.raises(MigrationFailed):
            persist.upgrade(connection)
        connection.execute(text("INSERT INTO host VALUES ('still here')"))
    assert place.ask("SELECT note FROM host") == [("still here",)]
    assert persist.current(engine) is None
    engine.dispose()


def test_what_is_not_ours_is_left_alone(sqlite_url: str) -> None:
    place = Place(sqlite_url)
    place.run("CREATE TABLE sessions (id TEXT)")
    engine = create_engine(sqlite_url)
    with pytest.raises(UnmanagedDatabase):
        persist.upgrade(engine)
    with engine.begin() as connection, pytest.raises(UnmanagedDatabase):
        persist.upgrade(connection)
    engine.dispose()


def test_an_asynchronous_engine_upgrades_inside_run_sync(place: Place) -> None:
    url = place.url.replace("postgresql://", "postgresql+psycopg://").replace("sqlite://", "sqlite+aiosqlite://")

    async def main() -> None:
        engine = create_async_engine(url)
        given: Any
        for given in (engine, engine.sync_engine):
            for call in (persist.upgrade, persist.current, persist.check):
                with pytest.raises(UnsupportedEngine, match="run_sync"):
                    call(given)
        async with engine.begin() as connection:
            assert connection.sync_connection is not None
            for call in (persist.upgrade, persist.current, persist.check):
                with pytest.raises(InvalidValue, match="run_sync"):
                    call(connection.sync_connection)
            await connection.run_sync(persist.upgrade)
            assert await connection.run_sync(persist.current) == HEAD
        await engine.dispose()

    asyncio.run(main())
    persist.check(place.url)


def test_another_schema(empty_postgres_url: str) -> None:
    engine = create_engine(empty_postgres_url.replace("postgresql://", "postgresql+psycopg://"))
    persist.upgrade(engine, schema="one")
    with engine.begin() as connection:
        persist.upgrade(connection, schema="two")
        assert persist.current(connection, schema="three") is None
    for schema, found in {"one": HEAD, "two": HEAD, "persist": None}.items():
        assert persist.current(engine, schema=schema) == persist.current(empty_postgres_url, schema=schema) == found
    engine.dispose()
