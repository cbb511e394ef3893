"""A user of an application is erased while another connection writes something of the user: neither fails."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from persist import Store
from persist.framework_state.app_sessions.schemas import ArtifactKey, NewEvent, StateChange
from tests.concurrency.test_conversation_pruning import postgres, until_it_waits
from tests.contract.conftest import Raw

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
