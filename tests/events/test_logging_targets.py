"""A target that keeps a log of its own: it is off while the rows are made, on afterwards, and on whatever went wrong."""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict
from persist.events import rebuild
from persist.testing import FrozenClock
from tests.contract.chat.scenes import create, say
from tests.contract.events.scenes import assert_gapless, events
from tests.events.chat_scene import play
from tests.events.places import TABLES, assert_rebuilt_byte_for_byte, raw_rows, rebuilt
from tests.schema.filling_workflows import fill_workflows
from tests.subprocesses import spawning


@pytest.fixture
def source_url(database_url: str, clock: FrozenClock) -> str:
    with Store.open(database_url, events=True, clock=clock) as store:
        play(store, clock)
        fill_workflows(store, clock)
    return database_url


@pytest.fixture
def target_url(new_database: Callable[[], str]) -> str:
    """It logs, and has had a session."""
    url = new_database()
    with Store.open(url, events=True) as store:
        former = create(store, id="former")
        with store.begin() as tx:
            tx.chat.sessions.delete(former)
    return url


def assert_logs(url: str) -> None:
    """What is written goes on in its log."""
    with Store.open(url) as store:
        last = events(store)[-1].position
        session = create(store)
        assert [(event.position, event.stream_id, event.type) for event in events(store, after=last)] == [
            (last + 1, session, "session.created")
        ]


def test_its_log_goes_on_with_what_was_made(source_url: str, target_url: str, new_database: Callable[[], str]) -> None:
    rebuilt(source_url, target_url)
    found, expected = raw_rows(target_url), raw_rows(source_url)
    for table in TABLES:
        assert found[table] == expected[table], table
    with Store.open(target_url) as store:
        log = events(store)
    assert_gapless(log)
    assert [event.type for event in log[:2]] == ["session.created", "session.deleted"]
    assert {event.type for event in log[2:]} == {"snapshot"}
    assert_rebuilt_byte_for_byte(target_url, new_database())
    assert_logs(target_url)


def test_readers_and_observers_of_the_target_are_told(source_url: str, target_url: str) -> None:
    told: list[Any] = []
    with Store.open(source_url) as source, Store.open(target_url) as target:
        target.on_commit(told.extend)
        rebuild(source, target)
        assert told == events(target, after=2)
        assert target.logs_events


def test_one_stream(source_url: str, target_url: str) -> None:
    with Store.open(source_url) as source, Store.open(target_url) as target:
        say(source, create(source, id="alone"), "hi")
        rebuild(source, target, "alone")
        assert {event.stream_id for event in events(target, after=2)} >= {"former", "alone"}
    assert_logs(target_url)


def test_a_rebuild_that_fails_leaves_the_log_on_and_nothing_in_it(source_url: str, target_url: str) -> None:
    before = raw_rows(target_url)
    with Store.open(source_url) as source, source.begin() as tx:
        tx.conversations.sessions.create(id="a")
        tx.conversations.branches.create("a", id="b")
        tx.conversations.messages.record("b", {"id": "m", "created_at": 1.5, "role": "user", "content": "x"})
        tx.conversations.sessions.create(id="c")
        tx.conversations.branches.create("c", id="d", system_msg_id="m")
    with Store.open(source_url) as source, Store.open(target_url) as target:
        log, scopes = events(target), dict(target.runtime.scopes)
        with pytest.raises(Conflict, match="leans on rows"):
            rebuild(source, target, "conversation:c")
        assert events(target) == log
        assert target.runtime.scopes == scopes
    assert raw_rows(target_url) == before
    assert_logs(target_url)


def test_a_rebuild_that_is_killed_leaves_the_log_on_and_nothing_in_it(source_url: str, target_url: str) -> None:
    before = raw_rows(target_url)
    with Store.open(target_url) as target:
        log = events(target)
    with spawning("tests.events.rebuild_worker", target_url) as spawn:
        process = spawn("rebuild", source_url)
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert raw_rows(target_url) == before
    with Store.open(target_url) as target:
        assert events(target) == log
    assert_logs(target_url)
    with Store.open(target_url) as target, target.begin() as tx:
        for session in tx.chat.sessions.list(limit=100).items:
            tx.chat.sessions.delete(session.id)
    rebuilt(source_url, target_url)
