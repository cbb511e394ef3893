"""Reading on from a position misses nothing, however long somebody took to commit."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from persist.errors import StoreBusy
from tests.contract.chat.scenes import MODEL, create, eventually
from tests.contract.events.scenes import assert_gapless, events


@pytest.fixture
def held(logging_store: Any, open_store: Callable[..., Any]) -> Iterator[Callable[[], None]]:
    """A transaction that has its position and does not commit until it is called."""
    other = open_store()
    numbered, go = threading.Event(), threading.Event()

    def hold() -> None:
        with other.begin() as tx:
            tx.events.append("slow", "noted", "early")
            numbered.set()
            assert go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert numbered.wait(60)

    def release() -> None:
        go.set()
        thread.join(60)

    yield release
    release()


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_later_position_is_never_seen_before_an_earlier_one(logging_store: Any, held: Any, open_store: Any) -> None:
    other, reader = open_store(), open_store()
    started = threading.Event()

    def quick() -> None:
        with other.begin() as tx:
            tx.chat.sessions.create(agent="a", model=MODEL)
            started.set()

    thread = threading.Thread(target=quick)
    thread.start()
    assert started.wait(60)
    seen: list[Any] = []
    for _ in range(20):
        seen += events(reader, after=seen[-1].position if seen else 0)
    assert seen == []
    held()
    thread.join(60)
    seen += events(reader)
    assert [event.type for event in seen] == ["noted", "session.created"]
    assert_gapless(seen)


@pytest.mark.parametrize("backend", ["postgres"])
def test_who_reads_while_many_commit_sees_every_position_once(logging_store: Any, open_store: Callable[..., Any]) -> None:
    writers = [open_store() for _ in range(4)]
    sessions = [create(logging_store) for _ in writers]
    failed: list[BaseException] = []

    def write(store: Any, own: str, other: str) -> None:
        def both(tx: Any) -> None:
            tx.events.append(own, "noted", 1)
            tx.chat.sessions.update_metadata(own, {"a": 1})
            tx.events.append(other, "noted", 2)

        try:
            for _ in range(15):
                store.transact(both, attempts=20)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(store, sessions[n], sessions[n - 1])) for n, store in enumerate(writers)]
    for thread in threads:
        thread.start()
    seen: list[Any] = []

    def complete() -> bool:
        seen.extend(events(logging_store, after=seen[-1].position if seen else 0))
        return len(seen) == 4 + 4 * 15 * 3 or failed != []

    assert eventually(complete, seconds=60)
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert_gapless(seen)
    assert seen == events(logging_store)


@pytest.mark.parametrize("backend", ["postgres"])
def test_trimming_and_writing_wait_for_each_other_in_one_order(logging_store: Any, open_store: Callable[..., Any]) -> None:
    """The database would end one of two that wait for each other: nobody is told to try again here."""
    session = create(logging_store)
    other = open_store()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            for _ in range(25):
                with other.begin() as tx:
                    tx.events.append(session, "noted", None)
        except StoreBusy as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    while thread.is_alive():
        with logging_store.begin() as tx:
            tx.events.trim(session, keep=2)
    thread.join(60)
    assert failed == []
    numbers = [event.seq for event in events(logging_store, session)]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
