"""The log is switched while others write and open stores: it is on or off as was said, and no number is without its event."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from persist import Store
from persist.errors import InvalidValue
from persist.maintenance import doctor
from persist.testing import FrozenClock

WITHOUT_EVENT = """SELECT h.stream_id FROM persist.event_heads h WHERE h.stream_id <> '*' AND h.seq > 0
    AND NOT EXISTS (SELECT FROM persist.event_log e WHERE e.stream_id = h.stream_id AND e.seq = h.seq)"""
POSITION_LOCKS = """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
    AND classid = CAST('persist.event_positions' AS regclass)::oid"""


@contextmanager
def repeated(call: Callable[[], object], threads: int) -> Iterator[list[BaseException]]:
    """Call it again and again on so many threads while the block runs; their errors."""
    ended, errors = threading.Event(), list[BaseException]()

    def go_on() -> None:
        try:
            while not ended.is_set():
                call()
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=go_on) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield errors
    finally:
        ended.set()
        for thread in running:
            thread.join(60)


def rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url) as raw:
        return raw.execute(statement).fetchall()


def test_no_number_is_without_its_event_when_the_log_goes_off(postgres_url: str) -> None:
    about: dict[str, Any] = {"agent": "build", "model": {"model_id": "m"}}
    with Store.open(postgres_url, events=True) as switch, Store.open(postgres_url) as writer:
        for _ in range(2):
            with repeated(lambda: writer.transact(lambda tx: tx.chat.sessions.create(**about)), 3) as errors:
                assert switch.switch_events(False)
            assert errors == []
            assert rows(postgres_url, WITHOUT_EVENT) == []
            assert switch.switch_events(True)
    assert rows(postgres_url, WITHOUT_EVENT) == []


def test_a_store_that_is_opened_meanwhile_neither_fails_nor_switches(postgres_url: str) -> None:
    with Store.open(postgres_url, events=True) as store:
        for _ in range(2):
            with repeated(lambda: Store.open(postgres_url).close(), 2) as errors:
                assert store.switch_events(False)
                with Store.open(postgres_url) as other:
                    assert not other.logs_events
                assert rows(postgres_url, "SELECT * FROM persist._meta WHERE key = 'events'") == []
                assert store.switch_events(True)
            assert errors == []


def test_a_transaction_has_one_lock_of_positions_however_much_it_appends(postgres_url: str) -> None:
    with Store.open(postgres_url, events=True) as store, store.begin() as tx:
        for number in range(20):
            tx.events.append("audit", "noted", number)
        assert rows(postgres_url, POSITION_LOCKS) == [(1,)]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_in_a_snapshot_of_a_host_nothing_is_passed_over(postgres_url: str, level: Any) -> None:
    engine = create_engine(
        postgres_url.replace("postgresql://", "postgresql+psycopg://", 1), isolation_level=level, poolclass=NullPool
    )
    with Store.open(postgres_url, events=True) as slow, Store.open(postgres_url) as fast, closing(engine.connect()) as host:
        start = slow.events.consumers.create("reader", at="now").position
        with slow.begin() as tx:
            tx.events.append("slow", "x", 1)
            fast.events.append("fast", "x", 2)
            host.exec_driver_sql("SELECT 1 FROM persist._meta")  # the host's snapshot, to which the slow one is unknown
        joined = fast.join(host)
        assert [event.stream_id for event in joined.events.read("*", after=start)] == []
        with pytest.raises(InvalidValue, match="READ COMMITTED"):
            joined.events.consumers.next("reader")
        host.rollback()
        assert [event.stream_id for event in fast.events.consumers.next("reader").events] == ["slow", "fast"]


def test_a_sequence_that_was_left_behind_is_found_and_raised(postgres_url: str, clock: FrozenClock) -> None:
    with Store.open(postgres_url, events=True) as store:
        for _ in range(3):
            store.events.append("audit", "noted", 1)
        assert "positions_behind" not in {finding.code for finding in doctor(store)}
        rows_of = "SELECT 1 FROM setval('persist.event_positions', 1)"
        assert rows(postgres_url, rows_of) == [(1,)]
        assert "positions_behind" in {finding.code for finding in doctor(store)}
        assert not store.switch_events(True)
        assert "positions_behind" not in {finding.code for finding in doctor(store)}
        last = store.events.read("audit")[-1].position
        assert store.events.append("audit", "noted", 1).position > last
