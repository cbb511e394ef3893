"""Opening a store: for reading only, in memory, over the caller's own engine."""

import asyncio
import gc
import logging
import threading
import warnings
import weakref
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, text

from persist import AsyncStore, Store
from persist.chat.following.turn_watch import turn_watch
from persist.errors import InvalidValue, ReadOnlyTransaction, SchemaOutdated, TransactionOpen, UnsupportedEngine
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.chat.scenes import MODEL, create, eventually, record, say, shown, turn, words
from tests.contract.chat.scenes import text as spoken
from tests.contract.faces import every_way

pytestmark = every_way


def test_a_read_only_store_reads_and_never_writes(store: Any, open_store: Any) -> None:
    session = create(store)
    say(store, session, "hi")
    reader = open_store(read_only=True)
    assert words(shown(reader, session)) == ["hi"]
    with pytest.raises(ReadOnlyTransaction), reader.begin():
        raise AssertionError("entered")
    with pytest.raises(ReadOnlyTransaction), reader.record(session):
        raise AssertionError("entered")
    with reader.read() as tx, pytest.raises(ReadOnlyTransaction):
        tx.chat.sessions.delete(session)
    say(store, session, "later")
    assert words(shown(reader, session)) == ["hi", "later"]


def test_reading_an_empty_database_creates_no_tables(tmp_path: Path, empty_postgres_url: str) -> None:
    (tmp_path / "empty.db").touch()
    for url in (f"sqlite:///{tmp_path / 'empty.db'}", empty_postgres_url):
        with pytest.raises(SchemaOutdated):
            Store.open(url, read_only=True)
    assert (tmp_path / "empty.db").stat().st_size == 0


def test_postgres_is_not_migrated_unless_asked(empty_postgres_url: str) -> None:
    with pytest.raises(SchemaOutdated) as outdated:
        Store.open(empty_postgres_url)
    assert "upgrade" in outdated.value.command
    with Store.open(empty_postgres_url, migrate=True) as store:
        create(store)


@pytest.mark.parametrize("url", ["mysql://localhost/x", "postgresql+asyncpg://localhost/x", "sqlite+aiosqlite:///x.db"])
def test_other_databases_and_drivers_are_refused(url: str) -> None:
    with pytest.raises(UnsupportedEngine):
        Store.open(url)


@each("url", ["", "state.db", "user:secret@host"])
def test_what_is_no_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Store.open(url)
    assert "secret" not in str(refused.value)
    assert 'Store.open(Path("state.db"))' in str(refused.value)


def test_the_path_is_that_of_the_sqlite_file(sqlite_url: str, postgres_url: str) -> None:
    with Store.open(sqlite_url) as store:
        assert store.path == Path(sqlite_url.removeprefix("sqlite:///"))
    with Store.open(postgres_url) as store:
        assert store.path is None
        assert "secret" not in repr(store)


@pytest.fixture
def memory(open_store: Any, face: str, backend: str) -> Any:
    """One shared connection; the database of the test plays no part."""
    return open_store(url="sqlite:///:memory:")


def undo_a_deletion(store: Any, session: str) -> None:
    with store.begin() as tx:
        tx.chat.sessions.delete(session)
        raise ZeroDivisionError


def test_a_store_in_memory_does_everything_on_one_connection(memory: Any) -> None:
    session = create(memory)
    say(memory, session, "hi")
    record(memory, session, turn(*spoken("hello")))
    assert words(shown(memory, session)) == ["hi", "hello"]
    with memory.record(session) as recorder:
        recorder.feed_many(spoken("a")[:-1])
        assert words(shown(memory, session))[-1] == "a"
        say(memory, session, "between")
    with pytest.raises(ZeroDivisionError):
        undo_a_deletion(memory, session)
    assert len(shown(memory, session)) == 4


def test_a_read_inside_a_begin_of_a_store_in_memory_is_refused(memory: Any) -> None:
    with memory.begin() as tx:
        tx.chat.sessions.create(agent="build", model=MODEL)
        with pytest.raises(TransactionOpen), memory.read():
            raise AssertionError("entered")
        with pytest.raises(TransactionOpen), memory.begin():
            raise AssertionError("entered")
    with memory.read() as tx, pytest.raises(ReadOnlyTransaction):
        tx.chat.sessions.create(agent="build", model=MODEL)
    create(memory)


def test_two_stores_in_memory_share_nothing(memory: Any, open_store: Any) -> None:
    create(memory)
    other = open_store(url="sqlite:///:memory:")
    assert other.chat.sessions.list().items == []


def engine_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.fixture(params=["default", "autocommit", "isolation none", "own begin"])
def engine(request: pytest.FixtureRequest, database_url: str) -> Iterator[Engine]:
    """Engines as hosts make them, over a database that is there."""
    Store.open(database_url).close()
    kind = str(request.param)
    options: dict[str, Any] = {}
    if kind == "autocommit":
        options["isolation_level"] = "AUTOCOMMIT"
    if kind == "isolation none" and database_url.startswith("sqlite"):
        options["connect_args"] = {"isolation_level": None}
    engine = create_engine(engine_url(database_url), **options)
    if database_url.startswith("sqlite"):

        @event.listens_for(engine, "connect")
        def configure(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA foreign_keys=ON")
            if kind == "own begin":
                connection.isolation_level = None

        if kind == "own begin":

            @event.listens_for(engine, "begin")
            def begin(connection: Any) -> None:
                connection.exec_driver_sql("BEGIN")

    yield engine
    engine.dispose()


def test_every_verb_works_over_the_callers_engine(engine: Engine) -> None:
    with Store.from_engine(engine) as store:
        session = create(store)
        point = say(store, session, "hi")
        record(store, session, turn(*spoken("hel", "lo")))
        with store.record(session) as recorder:
            recorder.feed_many(spoken("a")[:-1])
            recorder.feed({"type": "text-delta", "id": "t", "delta": "b"})
            assert words(shown(store, session))[-1] == "ab"
        with store.begin() as tx:
            tx.chat.sessions.fork(session, point)
            tx.chat.sessions.rewind(session, point)
        assert words(shown(store, session)) == ["hi"]
        with pytest.raises(ZeroDivisionError):
            undo_a_deletion(store, session)
        with store.read() as tx, pytest.raises(ReadOnlyTransaction):
            tx.chat.sessions.delete(session)
        assert words(shown(store, session)) == ["hi"]


def test_the_callers_engine_outlives_the_store(engine: Engine) -> None:
    Store.from_engine(engine).close()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1


def test_an_engine_without_foreign_keys_is_warned_about(sqlite_url: str, caplog: pytest.LogCaptureFixture) -> None:
    Store.open(sqlite_url).close()
    engine = create_engine(sqlite_url)
    with caplog.at_level(logging.WARNING, "persist"):
        Store.from_engine(engine).close()
    assert "foreign_keys" in caplog.text
    engine.dispose()


def test_an_engine_over_an_empty_database_is_refused(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'host.db'}")
    with pytest.raises(SchemaOutdated):
        Store.from_engine(engine)
    engine.dispose()


def _dropped(url: str, clock: FrozenClock) -> "list[weakref.ref[Any]]":
    """What a store that has written and recorded was made of, its pools among it, when nobody has the store any more."""
    store = Store.open(url, clock=clock)
    session = store.chat.sessions.create(agent="build", model={}).id
    store.workflows.runs.claim("w", lease=timedelta(minutes=5))
    with store.record(session) as recorder:
        recorder.feed({"type": "start", "messageId": f"of {session}"})
        recorder.feed({"type": "finish"})
    turn_watch(store.runtime)
    pools = [engine.pool for engine in store.runtime.connections.engines]
    return [*map(weakref.ref, (store.runtime, store.runtime.connections, *pools))]


def test_a_store_that_is_dropped_is_freed_with_its_connections(database_url: str, clock: FrozenClock) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dropped = [_dropped(database_url, clock) for _ in range(3)]
        gc.collect()
        gc.collect()  # what the first one closed keeps itself no longer
    assert [seen() for of_store in dropped for seen in of_store] == [None] * len(dropped) * len(dropped[0])
    ours = [str(one.message) for one in said if one.category is ResourceWarning and "was not closed" in str(one.message)]
    assert len(ours) == 3
    assert all(message.startswith("Store(") for message in ours)


async def _dropped_in_a_loop(url: str) -> "weakref.ref[Any]":
    store = await AsyncStore.open(url)
    session = await store.chat.sessions.create(agent="build", model={})
    async with store.record(session.id) as recorder:
        await recorder.feed({"type": "start", "messageId": f"of {session.id}"})
        await recorder.feed({"type": "finish"})
    return weakref.ref(store._runtime)


def test_an_asynchronous_store_that_is_dropped_is_freed_and_its_threads_end(database_url: str) -> None:
    before = set(threading.enumerate())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        dropped = asyncio.run(_dropped_in_a_loop(database_url))

        def is_freed() -> bool:
            gc.collect()
            return dropped() is None and set(threading.enumerate()) <= before

        assert eventually(is_freed)


def test_a_transaction_outlives_the_store_that_was_dropped(database_url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with Store.open(database_url).begin() as tx:
            gc.collect()
            tx.chat.sessions.create(agent="build", model={}, id="kept")
        gc.collect()
    with Store.open(database_url) as store:
        assert store.chat.sessions.get("kept").agent == "build"
