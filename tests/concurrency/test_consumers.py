"""Consumers of the log that race, that are killed, and that read while others commit."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from persist import Store
from persist.errors import LeaseLost
from persist.testing import FrozenClock
from tests.concurrency.test_threads import together
from tests.contract.chat.scenes import eventually
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


def allow(worker: Worker) -> None:
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()


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
            allow(worker)
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
def test_an_event_that_commits_late_is_not_passed_over(log: Store, open_store: Callable[..., Any]) -> None:
    """Its position is smaller than that of a transaction which was ready long before; that one waits for it."""
    slow, quick = open_store(), open_store()
    numbered, go, started = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with slow.begin() as tx:
            tx.events.append("slow", "noted", None)
            numbered.set()
            assert go.wait(60)

    def pass_by() -> None:
        with quick.begin() as tx:
            tx.chat.sessions.create(agent="a", model={"model_id": "m"})
            started.set()

    consumers = log.events.consumers
    consumers.create("outbox", at="now")
    threads = [threading.Thread(target=hold), threading.Thread(target=pass_by)]
    threads[0].start()
    assert numbered.wait(60)
    threads[1].start()
    assert started.wait(60)
    assert [bool(consumers.next("outbox")) for _ in range(20)] == [False] * 20
    go.set()
    for thread in threads:
        thread.join(60)
    types = []

    def all_seen() -> bool:
        if batch := consumers.next("outbox", limit=1):
            types.append(batch.events[0].type)
            consumers.ack("outbox", batch.position, token=batch.token)
        return len(types) == 2

    assert eventually(all_seen, seconds=60)
    assert types == ["noted", "session.created"]


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
