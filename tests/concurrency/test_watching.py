"""Following the log while others write to it: from where, how long, and what a reader holds meanwhile."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from persist import Store
from persist.errors import Closed, InvalidValue, TransactionOpen
from tests.concurrency.following import PATIENCE, Follower, append, data
from tests.contract.chat.scenes import create, record, turn
from tests.contract.chat.scenes import text as words
from tests.examples import examples
from tests.subprocesses import Worker

MANY = 450  # more than are read at once


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    return open_store(events=True)


@pytest.fixture
def other(store: Store, open_store: Callable[..., Store]) -> Store:
    """As another process has it."""
    return open_store()


def test_from_the_start_and_from_a_cursor(store: Store) -> None:
    append(store, "a", 1, 2)
    append(store, "b", 3)
    append(store, "a", 4)
    assert data(list(store.watch("a", timeout=0))) == [1, 2, 4]
    assert data(list(store.watch("a", after=2, timeout=0))) == [4]  # seq 3, position 4
    assert data(list(store.watch("b", timeout=0))) == [3]
    assert data(list(store.watch("*", timeout=0))) == [1, 2, 3, 4]
    assert data(list(store.watch("*", after=2, timeout=0))) == [3, 4]
    assert list(store.watch("nobody's", timeout=0)) == []
    assert list(store.watch("*", after=99, timeout=0)) == []


def test_more_than_is_read_at_once(store: Store) -> None:
    append(store, "a", *range(MANY))
    assert data(list(store.watch("a", timeout=0))) == list(range(MANY))


@pytest.mark.parametrize(
    "wrong", [{"stream_id": ""}, {"after": -1}, {"after": True}, {"timeout": -1}, {"timeout": float("nan")}], ids=str
)
def test_what_makes_no_sense_is_refused_at_once(store: Store, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        store.watch(**{"stream_id": "a", **wrong})


def test_a_timeout_counts_from_the_last_event(store: Store, other: Store) -> None:
    follower = Follower(store, "a", timeout=1.5)
    for number in range(3):
        append(other, "a", number)
        assert data(follower.take(1)) == [number]
    assert follower.rest() == []


def test_events_of_this_store_and_of_others_come_as_they_are_committed(store: Store, other: Store) -> None:
    everything, one = Follower(store), Follower(other, "a")
    for number, writer in enumerate((store, other, other, store)):
        append(writer, "b", number)
        append(writer, "a", number)
        assert data(everything.take(2)) == [number, number]
        assert data(one.take(1)) == [number]
    assert everything.nothing()
    assert one.nothing()


def test_a_recorder_is_followed_chunk_by_chunk(store: Store, other: Store) -> None:
    session = create(store)
    follower = Follower(other, session)
    assert follower.take(1)[0].type == "session.created"
    with store.record(session) as recorder:
        recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
        for piece in ("one ", "two "):
            recorder.feed({"type": "text-delta", "id": "t", "delta": piece})
            while (event := follower.take(1)[0]).type != "part.delta":
                pass
            assert event.data["changes"][0]["row"]["delta"] == piece


def test_what_is_rolled_back_is_never_seen(store: Store, other: Store) -> None:
    follower = Follower(other)

    def fail(tx: Any) -> None:
        tx.events.append("a", "said", "never")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.transact(fail)
    append(store, "a", "kept")
    (event,) = follower.take(1)
    assert (event.data, event.seq) == ("kept", 1)


def test_a_slow_reader_holds_no_transaction(store: Store, other: Store, database_url: str) -> None:
    append(store, "a", *range(MANY))
    watching = store.watch("a", timeout=0)
    assert next(watching).data == 0
    if database_url.startswith("sqlite"):
        with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"), isolation_level=None)) as raw:
            busy, left, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert (busy, left) == (0, 0)
    else:
        with psycopg.connect(database_url, autocommit=True) as raw_pg:
            query = "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
            assert raw_pg.execute(query).fetchall() == []
    append(other, "a", *range(MANY, MANY + 50))
    assert data(list(watching)) == list(range(1, MANY + 50))


def test_many_watch_at_once(store: Store, other: Store) -> None:
    followers = [Follower(each, stream) for each in (store, other) for stream in ("a", "*") for _ in range(4)]

    def write() -> None:
        for number in range(25):
            append(other, "a", number)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for follower in followers:
        seen = follower.take(75)
        assert [event.seq for event in seen] == list(range(1, 76))
    for thread in threads:
        thread.join(30)


def test_a_store_that_closes_ends_its_watches(open_store: Callable[..., Store]) -> None:
    """And is not kept from closing by one that looks at the log just now."""
    for _ in range(10):
        store = open_store(events=True)
        followers = [Follower(store, stream) for stream in ("a", "*", "a")]
        store.close()
        assert [follower.rest() for follower in followers] == [[], [], []]
        with pytest.raises(Closed):
            store.watch("a")


def test_a_reader_that_was_given_something_when_the_store_closed_gets_the_rest_of_that_and_ends(store: Store) -> None:
    append(store, "a", 1, 2)
    watching = store.watch("a")
    assert next(watching).data == 1
    store.close()
    assert data(list(watching)) == [2]


def test_a_read_only_store_watches(store: Store, open_store: Callable[..., Store]) -> None:
    follower = Follower(open_store(read_only=True), "a")
    append(store, "a", 1)
    assert data(follower.take(1)) == [1]


def test_a_log_that_is_off_is_read_and_waited_for(open_store: Callable[..., Store]) -> None:
    store = open_store()
    assert list(store.watch("*", timeout=0)) == []
    follower = Follower(store)
    session = create(store)
    store.switch_events(True)
    (event,) = follower.take(1)
    assert (event.stream_id, event.type) == (session, "snapshot")


def test_leaving_the_loop_gives_up_what_it_held(store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def noted(connect: Callable[..., Any]) -> Callable[..., Any]:
        def open_(*args: Any, **options: Any) -> Any:
            opened.append(connect(*args, **options))
            return opened[-1]

        return open_

    append(store, "a", 1)
    list(store.watch("a", timeout=0))  # the pool has its connections
    monkeypatch.setattr(sqlite3, "connect", noted(sqlite3.connect))
    monkeypatch.setattr(psycopg, "connect", noted(psycopg.connect))
    unused = store.watch("a")
    assert opened == []
    for _ in range(3):
        for event in store.watch("a", timeout=0.2):
            assert event.data == 1
        append(store, "b", 1)
        for _ in store.watch("a"):
            break
    assert len(opened) == 3  # one for each that waited
    del unused
    for connection in opened:
        if database_url.startswith("sqlite"):
            with pytest.raises(sqlite3.ProgrammingError):
                connection.execute("SELECT 1")
        else:
            assert connection.closed


def test_in_memory_a_watch_hears_of_its_own_store() -> None:
    with Store.open("sqlite:///:memory:", events=True) as store:
        follower = Follower(store, "a")
        append(store, "a", 1)
        assert data(follower.take(1)) == [1]
        with store.begin() as tx:
            watching = store.watch("a")
            with pytest.raises(TransactionOpen):
                next(watching)
            tx.events.append("a", "said", 2)
        assert data(follower.take(1)) == [2]


def test_a_watch_inside_a_transaction_sees_what_is_committed(store: Store, other: Store) -> None:
    append(other, "a", 1)
    with store.begin() as tx:
        tx.events.append("a", "said", 2)
        assert data(list(store.watch("a", timeout=0))) == [1]
    assert data(list(store.watch("a", timeout=0))) == [1, 2]


def test_a_whole_turn_comes_once_however_it_is_read(store: Store, other: Store) -> None:
    session = create(store)
    follower = Follower(other, session)
    record(store, session, turn(*words("some ", "words ", "in ", "pieces")))
    with store.read() as tx:
        stored = tx.events.read(session)
    assert follower.take(len(stored)) == stored
    one_by_one = [next(iter(store.watch(session, after=seq, timeout=0))) for seq in range(len(stored))]
    assert one_by_one == stored


# What watching does with a server: commits that overtake each other, lost connections, poolers.


_OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
_LISTENERS = f"{_OTHERS} AND query LIKE 'LISTEN %'"


@pytest.fixture
def backend() -> str:
    return "postgres"


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


Start = Callable[..., Worker]
WRITERS, EACH = 4, examples(1000)
