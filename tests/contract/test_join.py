"""Joining the caller's own transaction: we never commit it, we never end it, and a refused verb does not harm it."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text

from persist import Store
from persist.errors import Conflict, InvalidValue, NotFound, ReadOnlyTransaction
from tests.contract.chat.scenes import MODEL, create, say, shown, words

HI = [{"type": "text", "text": "hi"}]
ENGINES = ["legacy", "isolation none", "own begin", "own begin immediate"]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as store:
        yield store


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, database_url: str, store: Store) -> Iterator[Engine]:
    """A host's engine, with a table of the host's own."""
    kind = str(request.param)
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    if database_url.startswith("sqlite"):

        @event.listens_for(engine, "connect")
        def configure(connection: Any, _: Any) -> None:
            connection.execute("PRAGMA foreign_keys=ON")
            if kind != "legacy":
                connection.isolation_level = None

        if kind.startswith("own begin"):

            @event.listens_for(engine, "begin")
            def begin(connection: Any) -> None:
                connection.exec_driver_sql("BEGIN IMMEDIATE" if kind.endswith("immediate") else "BEGIN")

    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE host (note TEXT)"))
    yield engine
    engine.dispose()


def note(connection: Connection, words: str) -> None:
    connection.execute(text("INSERT INTO host VALUES (:note)"), {"note": words})


def notes(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [row[0] for row in connection.execute(text("SELECT note FROM host"))]


def count(store: Store) -> int:
    with store.read() as tx:
        return len(tx.chat.sessions.list(limit=100).items)


def test_the_callers_commit_keeps_both(store: Store, engine: Engine) -> None:
    with engine.begin() as connection:
        note(connection, "mine")
        tx = store.join(connection)
        session = tx.chat.sessions.create(agent="build", model=MODEL)
        tx.chat.messages.append(session.id, role="user", parts=HI)
        assert words(tx.chat.messages.list(session.id)) == ["hi"]
        assert count(store) == 0
    assert notes(engine) == ["mine"]
    assert words(shown(store, session.id)) == ["hi"]


def test_the_callers_rollback_takes_both(store: Store, engine: Engine, request: pytest.FixtureRequest) -> None:
    with engine.connect() as connection:
        note(connection, "mine")
        store.join(connection).chat.sessions.create(agent="build", model=MODEL)
        connection.rollback()
    assert count(store) == 0
    # an engine that never begins a transaction has committed its own row before we came
    begins = engine.dialect.name == "postgresql" or "isolation none" not in request.node.name
    assert notes(engine) == ([] if begins else ["mine"])


def test_a_verb_before_any_statement_of_the_caller_is_in_its_transaction_too(store: Store, engine: Engine) -> None:
    with engine.connect() as connection:
        store.join(connection).chat.sessions.create(agent="lost", model=MODEL)
        connection.rollback()
        store.join(connection).chat.sessions.create(agent="kept", model=MODEL)
        connection.commit()
    assert count(store) == 1


def test_a_refused_verb_leaves_the_callers_transaction_usable(store: Store, engine: Engine) -> None:
    taken = create(store)
    with engine.begin() as connection:
        note(connection, "before")
        tx = store.join(connection)
        with pytest.raises(NotFound):
            tx.chat.sessions.get("nowhere")
        with pytest.raises(InvalidValue):
            tx.chat.messages.append(taken, role="user", parts=[{}])
        with pytest.raises(Conflict):  # the database itself refuses this one
            tx.chat.sessions.create(agent="build", model=MODEL, id=taken)
        with pytest.raises(Conflict):
            tx.chat.messages.append(taken, role="user", parts=HI, id=say_in(tx, taken))
        note(connection, "after")
        tx.chat.messages.append(taken, role="user", parts=HI)
    assert notes(engine) == ["before", "after"]
    assert words(shown(store, taken)) == ["said", "hi"]


def say_in(tx: Any, session: str) -> str:
    return str(tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "said"}]).id)


def test_verbs_of_many_statements_are_all_or_nothing(store: Store, engine: Engine) -> None:
    session = create(store)
    point = say(store, session, "one")
    say(store, session, "two")
    with engine.begin() as connection:
        tx = store.join(connection)
        child = tx.chat.sessions.fork(session, point)
        assert tx.chat.sessions.rewind(session, point) == 1
        note(connection, child.id)
    assert words(shown(store, notes(engine)[0])) == words(shown(store, session)) == ["one"]


def test_an_autocommit_connection_is_refused_by_whatever_writes(store: Store, engine: Engine, database_url: str) -> None:
    """It leaves no transaction to be part of."""
    taken = create(store)
    whole = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1), isolation_level="AUTOCOMMIT")
    for connected in (engine.connect().execution_options(isolation_level="AUTOCOMMIT"), whole.connect()):
        with connected as connection:
            tx = store.join(connection)
            with pytest.raises(InvalidValue, match="AUTOCOMMIT"):
                tx.chat.sessions.delete(taken)
            assert tx.chat.sessions.get(taken).id == taken
    whole.dispose()


def test_a_read_only_store_joins_for_reading(store: Store, engine: Engine, database_url: str) -> None:
    session = create(store)
    with Store.open(database_url, read_only=True) as reader, engine.begin() as connection:
        tx = reader.join(connection)
        assert tx.chat.sessions.get(session).id == session
        with pytest.raises(ReadOnlyTransaction):
            tx.chat.sessions.delete(session)


def test_a_connection_of_another_kind_of_database_is_refused(sqlite_url: str, postgres_url: str) -> None:
    for url, other in ((sqlite_url, postgres_url), (postgres_url, sqlite_url)):
        engine = create_engine(other.replace("postgresql://", "postgresql+psycopg://", 1))
        with Store.open(url) as store, engine.connect() as connection, pytest.raises(InvalidValue):
            store.join(connection)
        engine.dispose()
