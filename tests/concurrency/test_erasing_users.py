"""A user of an application is erased while another connection writes something of the user: neither fails."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict, NotFound, StoreBusy
from persist.framework_state.app_sessions.schemas import ArtifactKey, NewEvent, StateChange
from persist.maintenance import doctor, erase, maintain, rebuild
from tests.concurrency.test_conversation_pruning import postgres, until_it_waits
from tests.contract.conftest import Raw
from tests.maintenance.erasing_scenes import person, rows

FILE = ArtifactKey("app", "u", "s", "f")
TABLES = ("app_user_sessions", "app_session_events", "app_session_state", "app_artifacts", "app_artifact_versions")


def counts(url: str) -> list[int]:
    with closing(Raw(url)) as raw:
        return [raw.count(table) for table in TABLES]


def save(tx: Any) -> None:
    tx.app_sessions.artifacts.save(FILE, "{}", data=b"second")


def save_large(tx: Any) -> None:
    tx.app_sessions.artifacts.save(FILE, "{}", data=bytes(100_000))


def append(tx: Any) -> None:
    tx.app_sessions.sessions.append("app", "u", "s", NewEvent("2", 2.0, "{}"), state=StateChange(session={"a": "1"}))


@postgres
@pytest.mark.parametrize("write", [save, save_large, append])
def test_what_is_being_written_is_erased_too(store: Store, database_url: str, write: Callable[[Any], None]) -> None:
    store.app_sessions.sessions.create("app", "u", "s")
    store.app_sessions.artifacts.save(FILE, "{}")
    with ThreadPoolExecutor(1) as pool:
        with store.begin() as tx:
            write(tx)
            erasing = pool.submit(store.app_sessions.sessions.erase_user, "app", "u")
            until_it_waits(database_url, erasing)
        assert erasing.result() >= 3
    assert counts(database_url) == [0] * len(TABLES)


@postgres
def test_what_is_made_meanwhile_stays_whole(store: Store, database_url: str) -> None:
    with store.begin() as tx:
        tx.app_sessions.sessions.create("app", "u", "t")
        tx.app_sessions.sessions.append("app", "u", "t", NewEvent("1", 1.0, "{}"))
        save(tx)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(store.app_sessions.sessions.erase_user, "app", "u").result() == 0
    assert counts(database_url) == [1, 1, 0, 1, 1]


# A person is erased while others write: what was there goes, and what is written under it meanwhile goes or is refused.


Write = Callable[[Store, int], Any]

WRITERS: dict[str, Write] = {
    "chat": lambda store, number: store.chat.messages.append("written", role="user", parts=[{"type": "text", "text": "x"}]),
    "conversation": lambda store, number: store.conversations.messages.record(
        "maria-main", {"id": f"more-{number}", "created_at": 2.5, "role": "user", "content": {"text": "x"}}
    ),
    "application": lambda store, number: store.app_sessions.sessions.append(
        "app", "maria", "first", NewEvent(f"more-{number}", 2.0 + number, "{}")
    ),
    "somebody else": lambda store, number: store.messaging.messages.add(
        store.messaging.sessions.get_or_create(platform="slack", channel_id="C1", user_id="eve").id, role="user", content="x"
    ),
}


@pytest.mark.parametrize("log", [False, True], ids=["without a log", "with a log"])
def test_writers_meanwhile(database_url: str, log: bool, new_database: Callable[[], str]) -> None:
    with Store.open(database_url, events=log) as store, ThreadPoolExecutor(len(WRITERS)) as pool:
        person(store, "maria")
        with store.begin() as tx:
            tx.chat.sessions.create(agent="a", model={}, owner="maria", id="written")
        writing, over = threading.Barrier(len(WRITERS) + 1), threading.Event()

        def write(name: str) -> int:
            """Until there is nothing to write to, or the erasure is over; how often it worked."""
            number = 0
            while not over.is_set():
                try:
                    WRITERS[name](store, number)
                except (NotFound, Conflict):
                    break
                except StoreBusy:
                    continue
                number += 1
                if number == 1:
                    writing.wait(60)
            return number

        writers = {name: pool.submit(write, name) for name in WRITERS}
        writing.wait(60)
        try:
            erase(store, owner="maria", session_id="maria-session", namespace="people.maria")
        finally:
            over.set()
        written = {name: one.result(60) for name, one in writers.items()}
        assert min(written.values()) >= 1
        with store.read() as tx:
            assert tx.chat.sessions.list(owner="maria").items == []
            with pytest.raises(NotFound):
                tx.conversations.sessions.get("maria-talk")
            assert tx.app_sessions.sessions.load("app", "maria", "first") is None
        assert doctor(store) == []
        found = rows(database_url)
        for table in ("chat_messages", "chat_parts", "app_session_events", "branches"):
            assert not [row for row in found[table] if "maria" in row or "written" in row], table
        assert found["messaging_messages"].total() == written["somebody else"]
        if log:
            maintain(store)
            url = new_database()
            with Store.open(url) as target:
                rebuild(store, target)
                maintain(target)
            rebuilt, found = rows(url), rows(database_url)
            assert {name for name in found if rebuilt[name] != found[name]} <= {"_meta"}
