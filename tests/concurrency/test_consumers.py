"""Consumers of the log that race, that are killed, and that read while others commit."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from persist import Store
from persist.errors import LeaseLost
from persist.events import Event
from persist.testing import FrozenClock
from tests.at_once import together
from tests.contract.chat.scenes import create, eventually
from tests.contract.conftest import Raw
from tests.contract.events.scenes import events
from tests.subprocesses import Worker

LEASE = timedelta(minutes=1)
EVENTS = 11


def note(store: Store, count: int, stream: str = "audit") -> None:
    with store.begin() as tx:
        for number in range(count):
            tx.events.append(stream, "noted", number)


@pytest.fixture
def log(store: Store) -> Store:
    """A store whose log has some events."""
    store.switch_events(True)
    note(store, EVENTS)
    return store


@pytest.fixture
def consume(database_url: str) -> Iterator[Callable[[float], Worker]]:
    """`consume(seconds)` starts a consumer with leases of that length; none outlives the test."""
    with ExitStack() as stack:

        def begin(seconds: float) -> Worker:
            worker = Worker("tests.concurrency.consumer_worker", database_url, "outbox", seconds, stdin=True)
            stack.callback(worker.close)
            return worker

        yield begin


def test_a_consumer_that_is_killed_with_events_loses_none(log: Store, consume: Callable[[float], Worker]) -> None:
    handled: list[int] = []
    for killed_with in ([4, 5, 6], [7, 8, 9], None):
        worker = consume(600 if killed_with is None else 1)
        while (line := worker.stdout.readline()) not in ("done\n", ""):
            positions = [int(word) for word in line.split()]
            if positions == killed_with:
                worker.kill()
                worker.wait(60)
                break
            handled += positions
            worker.tell()
    assert handled == list(range(1, EVENTS + 1))
    assert log.events.consumers.get("outbox").position == EVENTS


def test_8_threads_ask_and_one_gets_the_events(log: Store, open_store: Callable[..., Any]) -> None:
    stores = [open_store() for _ in range(8)]
    batches = together([partial(store.events.consumers.next, "outbox", lease=LEASE) for store in stores])
    (taken,) = [batch for batch in batches if batch]
    assert [event.position for event in taken.events] == list(range(1, EVENTS + 1))
    assert {batch.position for batch in batches} == {EVENTS}
    assert len(log.events.consumers.list()) == 1


def test_after_a_lease_8_threads_ask_and_one_gets_the_events(log: Store, open_store: Callable[..., Any]) -> None:
    clock = FrozenClock()
    stores = [open_store(clock=clock) for _ in range(8)]
    late = stores[0].events.consumers.next("outbox", lease=LEASE)
    clock.advance(delta=LEASE)
    batches = together([partial(store.events.consumers.next, "outbox", lease=LEASE) for store in stores])
    (taken,) = [batch for batch in batches if batch]
    assert taken.events == late.events
    with pytest.raises(LeaseLost):
        log.events.consumers.ack("outbox", late.position, token=late.token)
    assert log.events.consumers.ack("outbox", taken.position, token=taken.token)


def test_8_threads_share_one_consumer_and_nothing_is_handed_out_twice(log: Store, open_store: Callable[..., Any]) -> None:
    """No lease ends here, so that each event is handled once, and in order."""
    note(log, 40)
    stores = [open_store() for _ in range(8)]
    handled: list[int] = []

    def work(store: Store) -> None:
        consumers = store.events.consumers
        while consumers.list()[0].behind:
            if batch := consumers.next("outbox", limit=3, lease=timedelta(hours=1)):
                handled.extend(event.position for event in batch.events)
                consumers.ack("outbox", batch.position, token=batch.token)

    log.events.consumers.create("outbox")
    together([partial(work, store) for store in stores])
    assert handled == list(range(1, EVENTS + 41))


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_consumer_of_some_types_passes_over_nothing_while_many_commit(log: Store, open_store: Callable[..., Any]) -> None:
    stores = [open_store() for _ in range(4)]
    consumers = log.events.consumers
    consumers.create("outbox", at="now", types=["wanted"])
    seen: list[Any] = []

    def write(store: Store) -> None:
        for turn in range(20):
            with store.begin() as tx:
                tx.events.append("many", "wanted" if turn % 3 == 0 else "other", turn)

    def all_seen() -> bool:
        if batch := consumers.next("outbox", limit=2):
            seen.extend(batch.events)
            consumers.ack("outbox", batch.position, token=batch.token)
        return len(seen) == 4 * 7

    writers = threading.Thread(target=together, args=([partial(write, store) for store in stores],))
    writers.start()
    assert eventually(all_seen, seconds=60)
    writers.join(60)
    assert [event.position for event in seen] == sorted(event.position for event in seen)
    assert {event.type for event in seen} == {"wanted"}


# Positions of the log: readers of all streams get every event once and in order, however the writers' transactions end.


WRITERS, ROUNDS = 4, 40


@pytest.fixture
def raw(store: Store, database_url: str) -> Iterator[Raw]:
    """A raw connection to the database of the store."""
    raw = Raw(database_url)
    yield raw
    raw.close()


def stored(raw: Raw) -> list[tuple[int, str, int]]:
    return raw.rows("SELECT position, stream_id, seq FROM event_log ORDER BY position")


def told(found: list[Event]) -> list[tuple[int, str, int]]:
    return [(event.position, event.stream_id, event.seq) for event in found]


def test_every_reader_gets_every_event_once_and_in_order(store: Store, database_url: str, raw: Raw) -> None:
    store.switch_events(True)
    ended, watched, consumed = threading.Event(), list[Event](), list[Event]()

    def watch() -> None:
        while not ended.is_set():
            watched.extend(store.watch("*", after=watched[-1].position if watched else 0, timeout=0.2))
        watched.extend(store.watch("*", after=watched[-1].position if watched else 0, timeout=0))

    def consume() -> None:
        while True:
            last = ended.is_set()
            batch = store.events.consumers.next("reader", limit=7)
            consumed.extend(batch.events)
            if batch:
                store.events.consumers.ack("reader", batch.position, token=batch.token)
            elif last:
                return

    readers = [threading.Thread(target=watch), threading.Thread(target=consume)]
    writers = [Worker("tests.concurrency.log_worker", "write", database_url, seed, ROUNDS) for seed in range(WRITERS)]
    try:
        for reader in readers:
            reader.start()
        kept = 0
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            kept += int(writer.stdout.readline())
            assert writer.wait(120) == 0
    finally:
        ended.set()
        for reader in readers:
            reader.join(120)
        for writer in writers:
            writer.close()
    found = stored(raw)
    assert len(found) == kept
    assert told(watched) == told(consumed) == told(events(store)) == found
    numbers: dict[str, list[int]] = defaultdict(list)
    for _, stream, seq in found:
        numbers[stream].append(seq)
    assert all(given == list(range(1, len(given) + 1)) for given in numbers.values())


@pytest.mark.parametrize("backend", ["postgres"])
def test_nobody_waits_for_a_long_transaction_with_an_event(store: Store, open_store: Callable[..., Any]) -> None:
    store.switch_events(True)
    other = open_store()
    with store.begin() as tx:
        early = tx.events.append("slow", "noted", "early")
        with other.begin() as quick:
            late = quick.events.append("quick", "noted", "late")
        assert late.position > early.position
        assert [event.data for event in events(other, "quick")] == ["late"]
        assert events(other) == []
        assert list(other.watch("*", timeout=0)) == []
        assert not other.events.consumers.next("reader")
    assert [event.data for event in other.watch("*", timeout=0)] == ["early", "late"]
    assert [event.data for event in other.events.consumers.next("reader").events] == ["early", "late"]
    assert [event.data for event in events(other)] == ["early", "late"]


@pytest.mark.parametrize("backend", ["postgres"])
def test_transactions_without_events_delay_no_reader(store: Store, open_store: Callable[..., Any], database_url: str) -> None:
    store.switch_events(True)
    session = create(store)
    with psycopg.connect(database_url) as host, open_store().begin() as tx:
        host.execute("SELECT pg_current_xact_id()")
        tx.chat.sessions.update_metadata(session, {"not": "numbered yet"})
        with open_store().begin() as other:
            other.events.append("audit", "noted", "at once")
        assert [event.data for event in store.watch("*", timeout=0)][1:] == ["at once"]


def test_an_event_whose_process_died_at_once_is_found(store: Store, database_url: str) -> None:
    store.switch_events(True)
    watching = store.watch("*", timeout=60)
    found: list[Event] = []
    thread = threading.Thread(target=lambda: found.append(next(watching)))
    thread.start()
    with_events = Worker("tests.concurrency.log_worker", "last", database_url)
    assert with_events.wait(60) == -9
    thread.join(60)
    assert [event.data for event in found] == ["the last"]
    with_events.close()
    assert eventually(lambda: [event.data for event in events(store)] == ["the last"])


OLDER = """
    WITH counted AS (UPDATE event_heads SET seq = seq + 1 WHERE stream_id = '*' AND logging RETURNING seq),
    head AS (INSERT INTO event_heads (stream_id, seq) SELECT %(stream)s, 1 FROM counted
             ON CONFLICT (stream_id) DO UPDATE SET seq = event_heads.seq + excluded.seq RETURNING seq)
    INSERT INTO event_log (position, stream_id, seq, type, at, data)
    SELECT counted.seq, %(stream)s, head.seq, 'noted', 0, '{}' FROM counted, head RETURNING position"""


class Older:
    """A writer of an older release, which counts positions in the row of all streams."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, options="-c search_path=persist")

    def write(self, stream: str) -> int:
        self.connection.execute("SELECT set_config('persist.keeps_event_log', 'on', true)")
        row = self.connection.execute(OLDER, {"stream": stream}).fetchone()
        assert row is not None
        return int(row[0])


@pytest.mark.one_server
@pytest.mark.parametrize("backend", ["postgres"])
def test_an_older_release_that_writes_too_gets_positions_of_the_same_sequence(
    store: Store, open_store: Callable[..., Any], database_url: str
) -> None:
    store.switch_events(True)
    other, older = open_store(), Older(database_url)
    with older.connection, store.begin() as tx:
        positions = [older.write("old"), tx.events.append("new", "noted", 1).position, older.write("old")]
        with other.begin() as quick:
            positions.append(quick.events.append("quick", "noted", 1).position)
        assert list(other.watch("*", timeout=0)) == []
        older.connection.commit()
        positions += [older.write("older"), tx.events.append("new", "noted", 2).position]
    assert positions == sorted(set(positions))
    assert [event.position for event in store.watch("*", timeout=0)] == positions
    assert [event.seq for event in events(store, "old")] == [1, 2]


@pytest.mark.one_server
@pytest.mark.parametrize("backend", ["postgres"])
def test_a_log_that_an_older_release_kept_goes_on(open_store: Callable[..., Any], database_url: str, raw: Raw) -> None:
    first = open_store(events=True)
    for number in range(3):
        with first.begin() as tx:
            tx.events.append("audit", "noted", number)
    raw.rows("UPDATE event_heads SET settled = NULL, seq = 3 WHERE stream_id = '*'")
    raw.rows("ALTER SEQUENCE event_positions RESTART")
    raw.rows("DELETE FROM _meta WHERE key = 'events_snapshots'")
    raw.rows("UPDATE _meta SET value = '0024' WHERE key = 'events'")
    with first.begin() as tx:  # it counts, as the database says
        assert tx.events.append("audit", "noted", 3).position == 4
    second = open_store()
    for number, store in enumerate((second, first), 4):
        with store.begin() as tx:
            tx.events.append("audit", "noted", number)
    assert [(event.position, event.data) for event in second.watch("*", timeout=0)] == [(n + 1, n) for n in range(6)]
    assert raw.value("SELECT settled IS NOT NULL FROM event_heads WHERE stream_id = '*'")
    assert raw.value("SELECT value <> '0024' FROM _meta WHERE key = 'events'")


def test_counting_goes_on_where_the_log_was_off(store: Store) -> None:
    for _ in range(3):
        store.switch_events(True)
        with store.begin() as tx:
            tx.events.append("audit", "noted", None)
        store.switch_events(False)
    found = [event.position for event in events(store)]
    assert found == sorted(set(found))
    assert found == [event.position for event in store.watch("*", timeout=0)]
