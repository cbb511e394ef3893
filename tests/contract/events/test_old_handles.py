"""Whoever opened the database before the log was switched on writes nothing without an event."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from persist.errors import StoreBusy
from persist.testing import FrozenClock
from tests.contract.chat.scenes import MODEL, create, record, say, text, turn
from tests.contract.conftest import Raw
from tests.contract.events.scenes import assert_gapless, events, kinds, rows_of
from tests.subprocesses import Worker

pytestmark = pytest.mark.one_server
"""The guards, which are triggers, tell a store that the log is on."""


def logged(store: Any, table: str = "chat_messages") -> list[Any]:
    """The ids that events speak of."""
    return sorted({row["id"] for row in rows_of(events(store), table)})


@pytest.fixture
def old(store: Any, open_store: Callable[..., Any]) -> Any:
    """A store that has written already, and does not know yet that the log is on."""
    session = create(store)
    record(store, session, turn(*text("before")))
    other = open_store(sleep=lambda seconds: None)
    say(other, session, "before")
    assert store.switch_events(True)
    assert not other.logs_events
    return other


def test_a_block_of_its_own_is_not_refused_and_logged(old: Any, store: Any) -> None:
    with old.begin() as tx:
        session = tx.chat.sessions.create(agent="a", model=MODEL).id
        tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "x"}])
    assert old.logs_events
    assert kinds(store, session) == ["session.created", "message.appended"]
    assert_gapless(events(store))


def test_a_block_that_has_read_is_not_refused_and_logged(old: Any, store: Any) -> None:
    (session,) = logged(store, "chat_sessions")
    before = events(store)
    with old.begin() as tx:
        assert tx.chat.sessions.get(session).archived_at is None
        tx.chat.sessions.archive(session)
        tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "x"}])
    assert [event.type for event in events(store)[len(before) :]] == ["session.archived", "message.appended"]
    assert_gapless(events(store))


@pytest.mark.parametrize("face", ["sync"])
def test_a_block_with_a_statement_of_sqlalchemy_is_refused_on_a_server(old: Any, store: Any, raw: Raw) -> None:
    (session,) = logged(store, "chat_sessions")
    before = events(store)

    def archive() -> None:
        with old.begin() as tx:
            tx._work.connection.exec_driver_sql("SELECT 1")
            tx.chat.sessions.archive(session)

    if not raw.is_sqlite:
        with pytest.raises(StoreBusy, match="try again"):
            archive()
        assert events(store) == before
    archive()
    assert len(events(store)) == len(before) + 1
    assert_gapless(events(store))


def test_transact_tries_again_by_itself(old: Any, store: Any) -> None:
    session = old.transact(lambda tx: tx.chat.sessions.create(agent="a", model=MODEL)).id
    assert kinds(store, session) == ["session.created"]


def test_a_recorder_tries_again_by_itself(old: Any, store: Any, raw: Raw) -> None:
    (session,) = logged(store, "chat_sessions")
    before = len(events(store))
    record(old, session, turn(*text("one ", "two")))
    found = events(store)
    assert_gapless(found)
    assert [row["delta"] for row in rows_of(found[before:], "chat_part_deltas")] == ["one ", "two"]
    assert logged(store) == [row[0] for row in raw.rows("SELECT id FROM chat_messages ORDER BY id")]


def test_a_recorder_that_was_open_goes_on(store: Any, open_store: Callable[..., Any], raw: Raw) -> None:
    old = open_store()
    session = create(store)
    with old.record(session) as recorder:
        recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
        recorder.feed({"type": "text-delta", "id": "t", "delta": "a"})
        store.switch_events(True)
        for piece in ("b", "\ud83d", "c"):
            recorder.feed({"type": "text-delta", "id": "t", "delta": piece})
        recorder.feed({"type": "text-end", "id": "t"})
    found = events(store)
    assert_gapless(found)
    assert [row["delta"] for event in found for row in rows_of([event], "chat_part_deltas")][-3:] == ["b", "\ud83d", "c"]
    assert found[0].type == "snapshot"
    assert raw.count("chat_turns") == 0


def test_many_recorders_at_once_go_on(store: Any, open_store: Callable[..., Any]) -> None:
    old = open_store()
    sessions = [create(store) for _ in range(4)]
    ready, go = threading.Barrier(5, timeout=30), threading.Event()
    failed: list[BaseException] = []

    def follow(session: str) -> None:
        try:
            with old.record(session) as recorder:
                recorder.feed_many([{"type": "start"}, {"type": "text-start", "id": "t"}])
                ready.wait()
                assert go.wait(30)
                for number in range(10):
                    recorder.feed({"type": "text-delta", "id": "t", "delta": f"{number} "})
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=follow, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    ready.wait()
    store.switch_events(True)
    go.set()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert_gapless(events(store))
    for session in sessions:
        pieces = [row["delta"] for row in rows_of(events(store, session), "chat_part_deltas")]
        assert pieces == [f"{number} " for number in range(10)]


@pytest.mark.parametrize("way", ["recorder", "new recorder", "transact"])
@pytest.mark.parametrize("face", ["sync"])
def test_another_process_keeps_the_log_from_then_on(store: Any, database_url: str, way: str, raw: Raw) -> None:
    with Worker("tests.contract.events.old_handle_worker", database_url, way, stdin=True) as process:
        try:
            assert process.stdout.readline() == "ready False\n"
            assert store.switch_events(True)
            before = len(events(store))
            process.tell()
            session, knows = process.stdout.readline().split()
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert knows == "True"
    found = events(store)
    assert_gapless(found)
    later = [event.type for event in found[before:]]
    assert {"recorder": "part.delta", "new recorder": "message.finished", "transact": "session.archived"}[way] in later
    assert {event.stream_id for event in found} == {session}
    assert logged(store) == [row[0] for row in raw.rows("SELECT id FROM chat_messages ORDER BY id")]


def test_one_that_still_believes_the_log_is_on_writes_no_event_of_a_log_that_is_off(
    logging_store: Any, open_store: Callable[..., Any], clock: FrozenClock
) -> None:
    other = open_store()
    session = create(logging_store)
    logging_store.switch_events(False)
    say(other, session, "free")
    record(other, session, turn(*text("free")))
    assert not other.logs_events
    assert kinds(logging_store) == ["session.created"]
    other.switch_events(True)
    say(other, session, "kept")
    say(logging_store, session, "kept")
    assert kinds(logging_store) == ["session.created", "snapshot", "message.appended", "message.appended"]
