"""Rows of other programs' tables that refer to rows of persist: prune and erase say which, and go on with the others."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import create_engine

import persist
from persist import Conflict, Store, TransactionAborted
from persist.maintenance import doctor, erase, maintain, prune
from persist.maintenance.checkups import Finding
from persist.testing import FrozenClock
from tests.contract.chat.scenes import MODEL
from tests.contract.conftest import Raw
from tests.contract.faces import every_way

pytestmark = pytest.mark.one_database

MONTH = timedelta(days=30)


class Host:
    """A host's tables beside those of persist, some of whose rows refer to them, with foreign keys that are checked."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        if raw.is_sqlite:
            raw.rows("PRAGMA foreign_keys=ON")

    def refer(self, table: str, to: str, ids: list[str], action: str = "") -> None:
        self.raw.rows(f"CREATE TABLE {table} (no INTEGER PRIMARY KEY, theirs TEXT REFERENCES {to} (id) {action})")
        for number, id in enumerate(ids):
            self.raw.rows(f"INSERT INTO {table} (no, theirs) VALUES (?, ?)", number, id)


@pytest.fixture
def host(database_url: str, clock: FrozenClock) -> Iterator[Host]:
    Store.open(database_url, clock=clock).close()
    with closing(Raw(database_url)) as raw:
        yield Host(raw)
        for table in ("rounds", "plays", "notes", "shown", "letters"):
            raw.rows(f"DROP TABLE IF EXISTS {table}")


def conversations(store: Any, count: int, user: str = "maria") -> list[str]:
    made = []
    with store.begin() as tx:
        for _ in range(count):
            session = tx.conversations.sessions.create(user=user)
            tx.conversations.sessions.set_status(session.id, "completed")
            made.append(session.id)
    return made


def chats(store: Any, count: int) -> tuple[list[str], list[str]]:
    sessions, messages = [], []
    with store.begin() as tx:
        for number in range(count):
            session = tx.chat.sessions.create(agent="build", model=MODEL, owner="maria")
            message = tx.chat.messages.append(session.id, role="user", parts=[{"type": "text", "text": f"say {number}"}])
            tx.chat.sessions.archive(session.id)
            sessions.append(session.id)
            messages.append(message.id)
    return sessions, messages


def unfinished(findings: list[Finding]) -> int:
    return sum(one.code == "erasure_unfinished" for one in findings)


def where(raw: Raw) -> str:
    return "" if raw.is_sqlite else "persist."


@pytest.mark.parametrize("refusing", ["", "ON DELETE RESTRICT"])
def test_a_prune_leaves_what_others_refer_to_and_goes_on(url: str, host: Host, clock: FrozenClock, refusing: str) -> None:
    with Store.open(url, clock=clock, sleep=lambda seconds: None) as store:
        sessions = conversations(store, 5)
        host.refer("plays", "sessions", [sessions[0], sessions[0], sessions[3]], refusing)
        host.refer("notes", "sessions", sessions[1:3], "ON DELETE CASCADE")
        host.refer("shown", "sessions", sessions[3:], "ON DELETE SET NULL")
        clock.advance(delta=2 * MONTH)
        kept = {f"{where(host.raw)}plays: rows that refer to sessions by theirs": 3}
        for trial in (True, False):
            report = prune(store, "conversations", older_than=MONTH, dry_run=trial)
            assert (report.tables["sessions"], report.kept) == (3, kept)
            assert host.raw.count("sessions") == (5 if trial else 2)
        assert [host.raw.count("notes"), host.raw.rows("SELECT theirs FROM shown ORDER BY no")] == [0, [(sessions[3],), (None,)]]
        host.raw.rows("DELETE FROM plays")
        report = prune(store, "conversations", older_than=MONTH)
        assert (report.tables["sessions"], report.kept) == (2, {})


def test_a_prune_counts_references_to_what_hangs_on_a_row(url: str, host: Host, clock: FrozenClock) -> None:
    with Store.open(url, clock=clock, sleep=lambda seconds: None) as store:
        sessions, messages = chats(store, 4)
        host.refer("letters", "chat_messages", [messages[1], messages[1], messages[2]])
        clock.advance(delta=2 * MONTH)
        report = prune(store, "chat", older_than=MONTH)
        assert report.kept == {f"{where(host.raw)}letters: rows that refer to chat_messages by theirs": 3}
        with store.read() as tx:
            assert {session.id for session in tx.chat.sessions.list(archived=True).items} == {*sessions[1:3]}
            assert len(tx.chat.messages.list(sessions[1])) == 1


DEFERRED = "DEFERRABLE INITIALLY DEFERRED"


@pytest.mark.parametrize(
    ("plays", "rounds"),
    [
        (DEFERRED, None),
        ("ON DELETE SET NULL NOT NULL", None),
        ("ON DELETE SET DEFAULT DEFAULT 'nobody'", None),
        ("ON DELETE CASCADE", ""),
        ("ON DELETE CASCADE", DEFERRED),
    ],
)
def test_what_refuses_later_or_further_away_is_named_too(
    url: str, host: Host, clock: FrozenClock, plays: str, rounds: str | None
) -> None:
    """A key that is checked at the COMMIT, one whose action fails, and one to a row that would go with persist's."""
    with Store.open(url, clock=clock, sleep=lambda seconds: None) as store:
        sessions = conversations(store, 4)
        host.refer("plays", "sessions", [sessions[0], sessions[0]], plays)
        referring = "plays: rows that refer to sessions by theirs"
        if rounds is not None:
            host.raw.rows(f"CREATE TABLE rounds (no INTEGER PRIMARY KEY, play INTEGER REFERENCES plays (no) {rounds})")
            host.raw.rows("INSERT INTO rounds (no, play) VALUES (5, 0), (6, 1)")
            referring = "rounds: rows that refer to plays by play"
        name = where(host.raw) + referring
        clock.advance(delta=2 * MONTH)
        tried = prune(store, "conversations", older_than=MONTH, dry_run=True)
        assert (tried.tables["sessions"], tried.kept) == (3, {name: 2})
        left = {f"{name}: delete these, then `persist maintain` goes on": 2}
        trial = erase(store, owner="maria", dry_run=True)
        assert (trial.tables.get("sessions", 0), trial.kept) == (3, left)
        with pytest.raises(Conflict) as refused:
            store.conversations.sessions.delete(sessions[0])
        assert str(refused.value) == f"The database refuses the deletion because of {name} (2). These go first."
        assert prune(store, "conversations", older_than=MONTH).model_copy(update={"dry_run": True}) == tried
        assert host.raw.rows("SELECT id FROM sessions") == [(sessions[0],)]
        conversations(store, 1)
        report = erase(store, owner="maria")
        assert (report.tables["sessions"], report.kept) == (1, left)
        assert (host.raw.rows("SELECT id FROM sessions"), unfinished(doctor(store))) == ([(sessions[0],)], 1)
        (failed,) = [step.error for step in maintain(store).steps if step.name == "finish erasures"]
        assert name in str(failed)
        for table in ("plays",) if rounds is None else ("rounds", "plays"):
            host.raw.rows(f"DELETE FROM {table}")
        assert not maintain(store).failed
        assert (host.raw.count("sessions"), unfinished(doctor(store))) == (0, 0)


@pytest.mark.parametrize("refusing", ["", "ON DELETE RESTRICT"])
def test_an_erasure_says_what_has_to_go_first_and_maintain_finishes_it(
    url: str, host: Host, clock: FrozenClock, refusing: str
) -> None:
    with Store.open(url, clock=clock, sleep=lambda seconds: None) as store:
        theirs, others = conversations(store, 4), conversations(store, 1, "peter")
        sessions, messages = chats(store, 3)
        host.refer("plays", "sessions", [theirs[1], theirs[1], others[0]], refusing)
        host.refer("notes", "sessions", [theirs[2]], "ON DELETE CASCADE")
        host.refer("letters", "chat_messages", [messages[0]])
        referring = {"letters: rows that refer to chat_messages": 1, "plays: rows that refer to sessions": 2}
        kept = {
            f"{where(host.raw)}{what} by theirs: delete these, then `persist maintain` goes on": count
            for what, count in referring.items()
        }
        for trial in (True, False):
            report = erase(store, owner="maria", dry_run=trial)
            assert (report.tables["sessions"], report.tables["chat_sessions"], report.kept) == (3, 2, kept)
        assert sorted(host.raw.rows("SELECT id FROM sessions")) == sorted([(theirs[1],), (others[0],)])
        assert [id for (id,) in host.raw.rows("SELECT id FROM chat_sessions")] == [sessions[0]]
        assert unfinished(doctor(store)) == 1
        (failed,) = [step.error for step in maintain(store).steps if step.name == "finish erasures"]
        assert "rows that refer to" in str(failed)
        host.raw.rows("DELETE FROM plays WHERE theirs = ?", theirs[1])
        host.raw.rows("DELETE FROM letters")
        assert not maintain(store).failed
        assert host.raw.rows("SELECT id FROM sessions") == [(others[0],)]
        assert host.raw.count("chat_sessions") == host.raw.count("chat_messages") == 0
        assert unfinished(doctor(store)) == 0


def caught_inside(store: Any, delete: Callable[[Any], Any], id: str, beside: str, said: str) -> None:
    """The refusal is caught in the block, whose transaction can only be rolled back."""
    with store.begin() as tx:
        tx.chat.sessions.unarchive(beside)
        with pytest.raises(Conflict) as inside:
            delete(tx)(id)
        assert str(inside.value) == said
        with pytest.raises(TransactionAborted):
            tx.chat.sessions.get(beside)


@every_way
@pytest.mark.parametrize("action", ["", "ON DELETE RESTRICT"])
@pytest.mark.parametrize("logged", [False, True])
def test_a_deletion_says_which_rows_of_which_table_refuse_it(open_store: Any, host: Host, action: str, logged: bool) -> None:
    """Alone and inside of a transaction; with the log of events on, the rows are deleted by RETURNING."""
    store = open_store(events=logged)
    sessions, messages = chats(store, 3)
    (conversation,) = conversations(store, 1)
    host.refer("letters", "chat_messages", [messages[0], messages[0], messages[1]], action)
    host.refer("plays", "sessions", [conversation], action)
    two = f"{where(host.raw)}letters: rows that refer to chat_messages by theirs (2)"
    one = f"{where(host.raw)}plays: rows that refer to sessions by theirs (1)"
    cases: list[tuple[Callable[[Any], Any], str, str]] = [
        (lambda tx: tx.chat.sessions.delete, sessions[0], two),
        (lambda tx: tx.chat.messages.delete, messages[0], two),
        (lambda tx: tx.conversations.sessions.delete, conversation, one),
    ]
    for delete, id, what in cases:
        said = f"The database refuses the deletion because of {what}. These go first."
        with pytest.raises(Conflict) as alone:
            delete(store)(id)
        assert str(alone.value) == said
        with pytest.raises(TransactionAborted):
            caught_inside(store, delete, id, sessions[1], said)
        with pytest.raises(Conflict) as first, store.begin() as tx:
            delete(tx)(id)
        assert str(first.value) == said
    assert store.chat.sessions.get(sessions[1]).archived_at is not None
    store.chat.sessions.delete(sessions[2])
    assert host.raw.count("chat_sessions") == 2


def test_a_deletion_on_a_hosts_engine_says_it_too(url: str, host: Host, clock: FrozenClock) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    persist.prepare_engine(engine)
    with Store.from_engine(engine, clock=clock) as store:
        sessions, messages = chats(store, 2)
        host.refer("letters", "chat_messages", messages[:1])
        said = rf"because of {where(host.raw)}letters: rows that refer to chat_messages by theirs \(1\)"
        with pytest.raises(Conflict, match=said), store.begin() as tx:
            tx.chat.sessions.delete(sessions[0])
        with engine.begin() as connection:
            for _ in range(2):
                with pytest.raises(Conflict, match=said):
                    store.join(connection).chat.sessions.delete(sessions[0])
            store.join(connection).chat.sessions.delete(sessions[1])
        assert host.raw.count("chat_sessions") == 1
    engine.dispose()


@pytest.mark.parametrize("hosts", [True, False])
def test_a_refused_commit_keeps_no_lock(url: str, host: Host, clock: FrozenClock, hosts: bool) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    persist.prepare_engine(engine)
    with closing(Store.from_engine(engine, clock=clock) if hosts else Store.open(url, clock=clock)) as store:
        refused = conversations(store, 2)[0]
        host.refer("plays", "sessions", [refused], "DEFERRABLE INITIALLY DEFERRED")
        for delete in (lambda: store.conversations.sessions.delete(refused), lambda: erase(store, owner="maria")):
            with suppress(Conflict):  # an erasure may know before its commit what refers to a session
                delete()
            host.raw.rows("INSERT INTO plays (no) VALUES (7)")
            host.raw.rows("DELETE FROM plays WHERE no = 7")
            assert store.chat.sessions.create(agent="build", model=MODEL).id
        assert (refused,) in host.raw.rows("SELECT id FROM sessions")
    engine.dispose()
