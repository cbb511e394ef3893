"""What watching does with a server: commits that overtake each other, lost connections, poolers."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from persist import Store
from tests.concurrency.following import PATIENCE, Follower, append, data
from tests.contract.chat.scenes import create

_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_LISTENERS = f"{_OTHERS} AND query LIKE 'LISTEN %'"


@pytest.fixture
def backend() -> str:
    return "postgres"


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    return open_store(events=True)


@pytest.fixture
def raw(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def wait_for(raw: psycopg.Connection[Any], query: str, count: int = 1) -> None:
    """Until the server shows so many."""
    deadline = time.monotonic() + PATIENCE
    while (row := raw.execute(f"SELECT count(*) {query}").fetchone()) is None or row[0] != count:
        assert time.monotonic() < deadline, row
        time.sleep(0.01)


def test_a_transaction_that_began_first_and_commits_last_is_not_lost(store: Store, open_store: Callable[..., Store]) -> None:
    late, reader = open_store(), Follower(open_store())
    with late.begin() as tx:
        first = tx.chat.sessions.create(agent="late", model={})
        second = create(store)
        assert [event.stream_id for event in reader.take(1)] == [second]
    (event,) = reader.take(1)
    assert (event.stream_id, event.position) == (first.id, 2)


def test_a_number_that_is_given_before_its_commit_is_waited_for(
    store: Store, open_store: Callable[..., Store], raw: psycopg.Connection[Any]
) -> None:
    late, reader = open_store(), Follower(open_store())
    with late.begin() as tx:
        assert tx.events.append("a", "said", "first").position == 1
        append(store, "b", "second")
        assert reader.nothing()
    assert [(event.position, event.data) for event in reader.take(2)] == [(1, "first"), (2, "second")]


def test_a_listening_connection_that_is_cut_is_replaced(
    store: Store, raw: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "persist")
    reader = Follower(store, "a")
    append(store, "a", 0)
    assert data(reader.take(1)) == [0]
    for number in (1, 2):
        wait_for(raw, _LISTENERS)
        raw.execute(f"SELECT pg_terminate_backend(pid, 60000) {_LISTENERS}")  # waits until that connection is gone
        append(store, "a", number)
        assert data(reader.take(1)) == [number]
    wait_for(raw, _LISTENERS)
    assert len([record for record in caplog.records if "listening" in record.message]) == 2


def test_every_connection_is_cut_and_the_watch_goes_on(store: Store, raw: psycopg.Connection[Any]) -> None:
    reader = Follower(store, "a")
    append(store, "a", 1)
    assert data(reader.take(1)) == [1]
    raw.execute(f"SELECT pg_terminate_backend(pid) {_OTHERS} AND backend_type = 'client backend'")
    store.transact(lambda tx: tx.events.append("a", "said", 2))
    assert data(reader.take(1)) == [2]


def test_tables_that_are_away_and_come_back_end_no_watch(
    store: Store, raw: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    reader = Follower(store)
    append(store, "a", "before")
    assert data(reader.take(1)) == ["before"]
    raw.execute("ALTER SCHEMA persist RENAME TO elsewhere")  # as where a backup is restored
    deadline = time.monotonic() + PATIENCE
    while "the log of events cannot be read now" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    raw.execute("ALTER SCHEMA elsewhere RENAME TO persist")
    append(store, "a", "after")
    assert data(reader.take(1)) == ["after"]


def test_where_nobody_can_listen_it_looks_again_and_again(
    open_store: Callable[..., Store], raw: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "persist")
    store = open_store(events=True, listen_url="postgresql://nobody:secret@127.0.0.1:1/nowhere")
    reader = Follower(store, "a")
    for number in range(3):
        append(store, "a", number)
        assert data(reader.take(1)) == [number]
    store.close()
    (record,) = [record for record in caplog.records if "listening" in record.message]
    assert "secret" not in record.getMessage()


def test_behind_a_pooler_it_looks_again_and_again_and_says_so_once(
    open_store: Callable[..., Store], raw: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "persist")
    store = open_store(events=True, pooler="transaction")
    readers = [Follower(store, "a"), Follower(store)]
    for number in range(3):
        append(open_store(), "a", number)
        assert [data(reader.take(1)) for reader in readers] == [[number], [number]]
    wait_for(raw, _LISTENERS, count=0)
    (record,) = caplog.records
    assert "listen_url" in record.getMessage()


def test_behind_a_pooler_a_listen_url_is_told(
    open_store: Callable[..., Store], database_url: str, raw: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "persist")
    store = open_store(events=True, pooler="transaction", listen_url=database_url)
    reader = Follower(store, "a")
    wait_for(raw, _LISTENERS)
    append(store, "a", 1)
    assert data(reader.take(1)) == [1]
    assert caplog.records == []


def test_a_watch_of_one_schema_hears_nothing_of_another(
    store: Store, open_store: Callable[..., Store], raw: psycopg.Connection[Any]
) -> None:
    elsewhere = open_store(schema="elsewhere", migrate=True, events=True)
    reader = Follower(elsewhere)
    append(store, "a", "here")
    append(elsewhere, "a", "there")
    assert data(reader.take(1)) == ["there"]
    elsewhere.close()
    assert reader.rest() == []
