"""Pruning what is too much for one transaction: bounded parts, and between any two of them a valid store."""

import signal
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from persist import Store
from persist.blobs.upkeep import UnnamedBlobs
from persist.conversations import pruning as conversations
from persist.db.dialects.interface import Severity
from persist.db.operations.pruning import ROWS, Pruning
from persist.maintenance import doctor, prune
from persist.testing import FrozenClock
from tests.cases import each
from tests.contract.chat.scenes import create
from tests.contract.conftest import Raw
from tests.maintenance.pruning_scenes import DAY, DOMAINS, age, all_locked, forty_days_later
from tests.subprocesses import Worker

TABLES = ("chat_sessions", "chat_messages", "chat_parts")


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    with Store.open(database_url, clock=clock) as store:
        yield store


def limit(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """The most dependent rows that a transaction may delete from now on, of every kind of item."""
    for kind in (Pruning, UnnamedBlobs, *map(type, conversations.PRUNINGS)):
        monkeypatch.setattr(kind, "rows", most)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> int:
    limit(monkeypatch, 10)
    return 10


def long_chat(store: Store, messages: int, parts: int = 2) -> str:
    session = create(store)
    with store.begin() as tx:
        for number in range(messages):
            said = [{"type": "text", "text": f"{number}, {part}"} for part in range(parts)]
            tx.chat.messages.append(session, role="user", parts=said)
    return session


def counts(url: str) -> list[int]:
    with closing(Raw(url)) as raw:
        return [raw.count(table) for table in TABLES]


def errors(store: Store) -> list[str]:
    return [f"{one.code}: {one.message}" for one in doctor(store) if one.severity == Severity.ERROR]


def test_parts_delete_what_a_whole_deletes(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row at a time; one at a time a conversation of 143 places would be looked at in 300 transactions."""
    with forty_days_later(filled) as store:

        @each("what", DOMAINS)
        def delete(what: str) -> None:
            limit(monkeypatch, ROWS)
            expected = prune(store, what, older_than=30 * DAY, dry_run=True)
            before = errors(store)
            limit(monkeypatch, 10 if what == "conversations" else 1)
            report = prune(store, what, older_than=30 * DAY, progress=lambda gone: sound(store, before))
            assert (report.tables, sorted(report.files)) == (expected.tables, sorted(expected.files))
            assert report.total > 0
            assert prune(store, what, older_than=30 * DAY).tables == {}

        delete()


def sound(store: Store, before: list[str]) -> None:
    """Between two transactions nothing is there that doctor calls an error."""
    assert errors(store) == before


def test_a_long_chat_goes_in_transactions_of_so_many_rows(store: Store, database_url: str, clock: FrozenClock, rows: int) -> None:
    session = long_chat(store, 25)
    age(clock)
    told: list[int] = []

    def look(gone: int) -> None:
        told.append(gone)
        with store.read() as tx:
            left = tx.chat.messages.list(session) if tx.chat.sessions.list().items else []
        # messages are whole, and those that are left are the newest
        assert [[part["text"] for part in one["parts"]] for one in left] == [
            [f"{number}, {part}" for part in range(2)] for number in range(25 - len(left), 25)
        ]

    report = prune(store, "chat", older_than=30 * DAY, progress=look)
    assert report.tables == {"chat_messages": 25, "chat_parts": 50, "chat_sessions": 1}
    steps = [after - before for before, after in zip([0, *told], told, strict=False)]
    assert max(steps) <= 2 * rows  # so many rows below messages, and as many messages
    assert len(steps) > 3
    assert counts(database_url) == [0, 0, 0]


def test_a_message_of_many_parts_goes_in_parts(store: Store, database_url: str, clock: FrozenClock, rows: int) -> None:
    session = long_chat(store, 1, parts=45)
    age(clock)
    seen: list[int] = []

    def look(gone: int) -> None:
        with store.read() as tx:
            if tx.chat.sessions.list().items:
                seen.append(sum(len(one["parts"]) for one in tx.chat.messages.list(session)))

    assert prune(store, "chat", older_than=30 * DAY, progress=look).total == 47
    assert seen == [35, 25, 15, 5, 0][: len(seen)]
    assert len(seen) >= 4


def test_a_chat_that_is_used_again_keeps_what_is_left(store: Store, clock: FrozenClock, rows: int) -> None:
    session = long_chat(store, 25)
    age(clock)
    used: list[int] = []

    def use(gone: int) -> None:
        used.append(gone)
        with store.begin() as tx:
            if len(used) == 1:
                tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": "once more"}])

    prune(store, "chat", older_than=30 * DAY, progress=use)
    with store.read() as tx:
        left = tx.chat.messages.list(session)
    assert left[-1]["parts"][0]["text"] == "once more"
    assert 15 < len(left) < 26
    assert used == [used[0]] * 2  # the second transaction left it alone


def test_small_chats_still_go_together(store: Store, clock: FrozenClock, rows: int) -> None:
    for _ in range(7):
        long_chat(store, 1, parts=1)
    age(clock)
    told: list[int] = []
    prune(store, "chat", older_than=30 * DAY, progress=told.append)
    assert told[0] >= 3 * 3  # three chats of three rows each in the first transaction
    assert told[-1] == 21


def long_conversation(store: Store, messages: int) -> None:
    """Its progression and that of its branch name the same messages."""
    with store.begin() as tx:
        tx.conversations.sessions.create(id="long", status="completed")
        branch = tx.conversations.branches.create("long", id="branch")
        made: list[dict[str, Any]] = [
            {"id": f"m{n:03}", "created_at": 1.5, "role": "user", "content": "x"} for n in range(messages)
        ]
        tx.conversations.messages.put_many(made)
        ids = [str(message["id"]) for message in made]
        tx.conversations.progressions.replace(branch.progression_id, ids)
        tx.conversations.progressions.replace(tx.conversations.sessions.get("long").progression_id, ids)


def shown(store: Store, branch: str) -> list[str]:
    with store.read() as tx:
        return [message.id for message in tx.conversations.branches.history(branch)]


def test_a_long_conversation_becomes_shorter_from_its_end(store: Store, clock: FrozenClock, rows: int, database_url: str) -> None:
    long_conversation(store, 35)
    with store.begin() as tx:
        fork = tx.conversations.branches.fork("branch", at=30)
    age(clock)
    told, lengths = [0], []

    def look(gone: int) -> None:
        told.append(gone)
        with store.read() as tx:
            there = tx.conversations.sessions.list().items
        if there:
            left = shown(store, "branch")
            assert left == [f"m{number:03}" for number in range(len(left))]
            assert shown(store, fork.id) == left[:30]
            assert errors(store) == []
            lengths.append(len(left))

    report = prune(store, "conversations", older_than=30 * DAY, progress=look)
    assert report.tables == {"branches": 2, "messages": 35, "progression_members": 70, "progressions": 3, "sessions": 1}
    assert max(after - before for before, after in pairwise(told)) <= 2 * rows
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) >= 3
    with closing(Raw(database_url)) as raw:
        assert [raw.count(table) for table in report.tables] == [0] * 5


def test_what_a_fork_of_a_long_conversation_shows_stays(store: Store, clock: FrozenClock, rows: int, database_url: str) -> None:
    """A fork that another program has put into another session."""
    long_conversation(store, 35)
    with store.begin() as tx:
        tx.conversations.sessions.create(id="young", status="running")
        fork = tx.conversations.branches.fork("branch")
    with closing(Raw(database_url)) as raw:
        raw.rows("UPDATE branches SET session_id = 'young' WHERE id = ?", fork.id)
    inherited = shown(store, fork.id)
    age(clock)
    assert prune(store, "conversations", older_than=30 * DAY).tables["sessions"] == 1
    assert shown(store, fork.id) == inherited == [f"m{number:03}" for number in range(35)]
    assert errors(store) == []


def test_where_one_writes_a_prune_leaves_the_lock_to_others(database_url: str, clock: FrozenClock, rows: int) -> None:
    """Between two transactions; on a server, where others need other rows, it does not pause."""
    pauses: list[float] = []
    with Store.open(database_url, clock=clock, sleep=pauses.append) as store:
        long_chat(store, 25)
        age(clock)
        told: list[int] = []
        prune(store, "chat", older_than=30 * DAY, progress=told.append)
        assert len(pauses) == (len(told) - 1 if store.path else 0)
        assert all(pause > 0 for pause in pauses)


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_dry_run_on_a_server_counts_and_locks_nothing(store: Store, database_url: str, clock: FrozenClock) -> None:
    """It counts what a writer holds; and says what the prune then removes."""
    session = long_chat(store, 25)
    recording = long_chat(store, 1)
    with store.record(recording) as recorder:
        recorder.feed({"type": "start"})
        age(clock)
        with closing(Raw(database_url)) as writer:
            writer.rows("BEGIN")
            writer.rows("SELECT * FROM chat_sessions WHERE id = ? FOR UPDATE", session)
            for table in TABLES:
                writer.rows(f"LOCK TABLE {table} IN EXCLUSIVE MODE")  # whoever writes or locks a row would wait
            expected = prune(store, "chat", older_than=30 * DAY, dry_run=True)
            writer.rows("ROLLBACK")
        assert expected.tables == {"chat_messages": 25, "chat_parts": 50, "chat_sessions": 1}
        assert prune(store, "chat", older_than=30 * DAY).tables == expected.tables


@pytest.mark.parametrize("backend", ["postgres"])
def test_what_is_counted_is_what_goes(filled: str) -> None:
    with forty_days_later(filled) as store, closing(Raw(filled)) as writer:

        @each("what", DOMAINS)
        def count(what: str) -> None:
            total = 0
            for keep in (1, 0):
                with all_locked(writer):
                    expected = prune(store, what, older_than=30 * DAY, keep=keep, dry_run=True)
                report = prune(store, what, older_than=30 * DAY, keep=keep)
                assert (expected.tables, sorted(expected.files)) == (report.tables, sorted(report.files)), keep
                total += report.total
            assert total > 0

        count()


def test_a_prune_that_is_killed_in_a_long_chat_is_continued(store: Store, database_url: str, clock: FrozenClock) -> None:
    session = long_chat(store, 60)
    short = long_chat(store, 1)
    worker = Worker("tests.maintenance.pruning_worker", database_url, "chat", 500, 10)
    try:
        assert int(worker.stdout.readline()) > 0
        worker.send_signal(signal.SIGKILL)
        worker.wait(30)
    finally:
        worker.close()
    sessions, messages, parts = counts(database_url)
    assert parts == 2 * messages
    with store.read() as tx:
        for chat in tx.chat.sessions.list().items:
            assert chat.id in (session, short)
            assert all(len(one["parts"]) == 2 for one in tx.chat.messages.list(chat.id))
    assert errors(store) == []
    clock.advance(seconds=1)
    report = prune(store, "chat", older_than=timedelta(0))
    assert report.tables.get("chat_sessions", 0) == sessions
    assert counts(database_url) == [0, 0, 0]
