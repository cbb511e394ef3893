"""What cannot be read of a person is erased, or the report says that it stays and what to do."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from persist import Store
from persist.framework_state.app_sessions.schemas import NewMemory
from persist.maintenance import doctor, erase
from persist.maintenance.erasure_plans import EVENTS, ROWS
from persist.maintenance.quarantined_copies import EVENTS_ASIDE
from tests.maintenance.erasing_scenes import places_of

NEEDLE = "needle-in-the-haystack"
SESSION_KEYS = (("chat_sessions", "id"), ("chat_messages", "session_id"), ("chat_parts", "session_id"))


@pytest.fixture
def path(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


def say(store: Store, owner: str, id: str, text: str) -> None:
    with store.begin() as tx:
        tx.chat.sessions.create(id=id, agent="a", model={}, owner=owner, metadata={"text": text})
        tx.chat.messages.append(id, role="user", parts=[{"type": "text", "text": text}])
        tx.app_sessions.memories.add("app", owner, id, [NewMemory(f"{id}-memory", "{}", text, [text])])


def spoil(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        for statement in statements:
            raw.execute(statement)


@pytest.mark.parametrize(("cell", "log"), [("CAST(x'ff' AS TEXT)", False), ("x'00'", True)])
def test_rows_whose_key_cannot_be_read_are_said_and_erased_from_the_quarantine(
    sqlite_url: str, path: Path, cell: str, log: bool
) -> None:
    with Store.open(sqlite_url, events=log) as store:
        say(store, "maria", "m", NEEDLE)
        say(store, "peter", "p", "what-stays")
        store.switch_events(False)
    keys = [f"UPDATE {table} SET {column} = {cell} WHERE {column} = 'm'" for table, column in SESSION_KEYS]
    spoil(path, *keys, f"UPDATE app_memories SET session_id = {cell} WHERE user_id = 'maria'")
    with Store.open(sqlite_url) as store:
        for trial in (True, False):  # a session and a memory
            assert erase(store, owner="maria", user_id="maria", dry_run=trial).kept == {ROWS: 2}
        doctor(store, fix=True)
        report = erase(store, owner="maria")
        assert (report.kept, report.tables) == ({}, {"quarantine": 4})
        assert places_of(sqlite_url, NEEDLE) == set()
        assert len(store.chat.messages.list("p")) == 1
    assert NEEDLE.encode() not in path.read_bytes()


def test_events_that_cannot_be_read(sqlite_url: str, path: Path) -> None:
    """One in the session's own stream is blanked; of one in a stream that others share nobody can tell whose it is."""
    with Store.open(sqlite_url, events=True) as store:
        say(store, "maria", "m", NEEDLE)
    spoil(path, f"UPDATE event_log SET data = replace(data, '{{', '{{{{') WHERE data LIKE '%{NEEDLE}%'")
    with Store.open(sqlite_url) as store:
        report = erase(store, owner="maria")
        assert report.kept == {EVENTS: 1}
        assert places_of(sqlite_url, NEEDLE) == {("event_log", "data")}
        doctor(store, fix=True)
        assert erase(store, owner="maria").kept == {EVENTS_ASIDE: 1}
        assert places_of(sqlite_url, NEEDLE) == {("quarantine", "contents")}


def test_events_set_aside_before(sqlite_url: str, path: Path) -> None:
    with Store.open(sqlite_url, events=True) as store:
        say(store, "maria", "m", NEEDLE)
    spoil(path, f"UPDATE event_log SET data = replace(data, '{{', '{{{{') WHERE data LIKE '%{NEEDLE}%'")
    with Store.open(sqlite_url) as store:
        doctor(store, fix=True)
        report = erase(store, owner="maria")
        assert report.kept == {EVENTS_ASIDE: 1}
        assert places_of(sqlite_url, NEEDLE) == {("quarantine", "contents")}
        with closing(sqlite3.connect(path)) as raw:
            assert raw.execute("SELECT count(*) FROM quarantine").fetchone() == (1,)
