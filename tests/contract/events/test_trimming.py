"""Letting go of old events: a snapshot first, the numbers of what is left stay; and reading on misses no late commit."""

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from persist.errors import Conflict, InvalidValue, StoreBusy
from persist.events import repository
from persist.events.upkeep import trim_each
from persist.settings import Settings
from tests.contract.chat.scenes import MODEL, create, eventually, say
from tests.contract.events.scenes import assert_gapless, events, kinds, rows_of, trim
from tests.contract.faces import every_way

HOUR = timedelta(hours=1)


@pytest.fixture
def session(logging_store: Any, clock: Any) -> str:
    """Five events, an hour apart; the last is from now."""
    id = create(logging_store)
    for number in range(4):
        clock.advance(delta=HOUR)
        say(logging_store, id, str(number))
    return id


def numbers(store: Any, stream: str) -> list[int]:
    return [event.seq for event in events(store, stream)]


def test_by_count(logging_store: Any, session: str) -> None:
    assert trim(logging_store, session, keep=2) == 3
    assert numbers(logging_store, session) == [4, 5, 6]
    assert kinds(logging_store, session)[-1] == "snapshot"


def test_nothing_of_what_happened_is_kept(logging_store: Any, session: str) -> None:
    other = create(logging_store)
    assert trim(logging_store, session, keep=0) == 5
    assert [(event.seq, event.type) for event in events(logging_store, session)] == [(6, "snapshot")]
    assert trim(logging_store, session, keep=0) == 0
    say(logging_store, session, "next")
    assert numbers(logging_store, session) == [6, 7]
    assert numbers(logging_store, other) == [1]
    assert trim(logging_store, keep=0) == 3
    assert [(event.stream_id, event.seq, event.type) for event in events(logging_store)] == [
        *sorted([(other, 2, "snapshot"), (session, 8, "snapshot")])
    ]


def test_nothing_at_all_is_kept_of_a_log_that_was_switched_off(logging_store: Any, session: str) -> None:
    logging_store.switch_events(False)
    assert trim(logging_store, keep=0) == 5
    assert events(logging_store) == []
    logging_store.switch_events(True)
    assert [(event.seq, event.position, event.type) for event in events(logging_store, session)] == [(6, 6, "snapshot")]


def test_by_age(logging_store: Any, session: str) -> None:
    assert trim(logging_store, session, older_than=2 * HOUR) == 2
    assert numbers(logging_store, session) == [3, 4, 5, 6]
    assert trim(logging_store, session, older_than=2 * HOUR) == 0
    assert numbers(logging_store, session) == [3, 4, 5, 6]


def test_what_is_old_stays_where_it_is_among_the_newest(logging_store: Any, session: str, clock: Any) -> None:
    clock.advance(delta=100 * HOUR)
    assert trim(logging_store, session, older_than=HOUR, keep=4) == 1
    assert numbers(logging_store, session) == [2, 3, 4, 5, 6]


def test_the_snapshot_holds_the_stream_as_it_stands(logging_store: Any, session: str) -> None:
    trim(logging_store, session, keep=1)
    snapshot = events(logging_store, session)[-1]
    assert [row["data_json"]["text"] for row in rows_of([snapshot], "chat_parts")] == ["0", "1", "2", "3"]
    assert [row["id"] for row in rows_of([snapshot], "chat_sessions")] == [session]


def test_what_the_transaction_did_before_comes_before_the_snapshot(logging_store: Any, session: str) -> None:
    with logging_store.begin() as tx:
        tx.chat.sessions.archive(session)
        tx.events.trim(session, keep=1)
    assert kinds(logging_store, session) == ["session.archived", "snapshot"]


def test_numbers_and_positions_go_on(logging_store: Any, session: str, raw_of: Callable[[], Any]) -> None:
    trim(logging_store, session, keep=1)
    say(logging_store, session, "next")
    last = events(logging_store, session)[-1]
    assert (last.seq, last.position) == (7, 7)
    heads = raw_of().rows("SELECT stream_id, seq, first_seq FROM event_heads WHERE stream_id <> '*'")
    assert heads == [(session, 7, 5)]


@pytest.mark.every_way
def test_on_the_store_each_stream_is_a_transaction(logging_store: Any, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong with one stream leaves the others trimmed; those that are short enough are not looked at."""
    others = sorted(create(logging_store) for _ in range(2))
    for other in others:
        say(logging_store, other, "hi")
    create(logging_store)
    seen: list[str] = []

    def trimmed(work: Any, streams: list[str], **options: Any) -> int:
        seen.extend(streams)
        if streams == others[1:]:
            raise Conflict("here it ends")
        return trim_each(work, streams, **options)

    with monkeypatch.context() as patched:
        patched.setattr(repository, "trim_each", trimmed)
        with pytest.raises(Conflict):
            logging_store.events.trim(keep=1)
    assert seen == sorted([session, *others])[: len(seen)]
    assert [numbers(logging_store, other)[0] for other in others] == [2, 1]
    assert logging_store.events.trim(keep=1) > 0
    assert numbers(logging_store, others[1])[0] == 2


def test_a_transaction_trims_a_thousand_streams_at_most(
    logging_store: Any, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short stream does not count."""
    monkeypatch.setattr(repository, "MOST_STREAMS", 1)
    create(logging_store)
    assert trim(logging_store, keep=4) == 1
    say(logging_store, create(logging_store), "hi")
    before = events(logging_store)
    with pytest.raises(InvalidValue, match=r"`store\.events\.trim`"):
        trim(logging_store, keep=1)
    assert events(logging_store) == before


def test_a_log_that_was_switched_off_is_trimmed_without_a_snapshot(logging_store: Any, session: str) -> None:
    logging_store.switch_events(False)
    assert trim(logging_store, session, keep=2) == 3
    assert numbers(logging_store, session) == [4, 5]
    assert trim(logging_store, session, older_than=timedelta(0)) == 1
    assert numbers(logging_store, session) == [5]


@every_way
@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("inside", [True, False], ids=["in a transaction", "on the store"])
def test_a_stream_that_another_transaction_holds_is_left_to_the_next_trim(
    short_lock_waits: None, logging_store: Any, open_store: Callable[..., Any], raw: Any, inside: bool
) -> None:
    with logging_store.begin() as tx:
        for stream in ("a", "b", "c") * 3:
            tx.events.append(stream, "said", {})
    other = open_store(settings=Settings(busy_timeout_ms=50))
    raw.rows("BEGIN")
    raw.rows("SELECT seq FROM event_heads WHERE stream_id = 'b' FOR UPDATE")
    went = trim(other, keep=1) if inside else other.events.trim(keep=1)
    with pytest.raises(StoreBusy):
        trim(other, "b", keep=1)
    raw.rows("ROLLBACK")
    assert went == 4
    assert [len(numbers(other, stream)) for stream in "abc"] == [2, 3, 2]
    assert other.events.trim(keep=1) > 0
    assert len(numbers(other, "b")) == 2


def test_nothing_to_let_go_of(logging_store: Any, session: str) -> None:
    before = events(logging_store)
    with pytest.raises(InvalidValue):
        trim(logging_store)
    found = [trim(logging_store, "unknown", keep=1), trim(logging_store, session, keep=5), trim(logging_store, session, keep=99)]
    assert found == [0, 0, 0]
    assert trim(logging_store, session, older_than=10 * HOUR) == 0
    assert events(logging_store) == before


# Reading on from a position misses nothing, however long somebody took to commit.


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
                other.events.append(session, "noted", None)
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
