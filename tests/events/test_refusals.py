"""What cannot be rebuilt is refused, and the target keeps what it had."""

from collections.abc import Callable
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict, InvalidValue, NotFound
from persist.events import rebuild
from tests.contract.chat.scenes import create, say
from tests.events.places import raw_rows


@pytest.fixture
def source(database_url: str) -> Any:
    with Store.open(database_url, events=True) as store:
        say(store, create(store, id="one"), "hi")
        create(store, id="two")
        yield store


@pytest.fixture
def target_url(new_database: Callable[[], str]) -> str:
    return new_database()


def test_a_target_with_rows(source: Store, target_url: str) -> None:
    with Store.open(target_url) as target:
        create(target)
        before = raw_rows(target_url)
        with pytest.raises(Conflict, match="chat_sessions"):
            rebuild(source, target)
    assert raw_rows(target_url) == before


def test_an_unknown_stream(source: Store, target_url: str) -> None:
    with Store.open(target_url) as target, pytest.raises(NotFound, match="three"):
        rebuild(source, target, "three")


def test_a_stream_that_was_trimmed(source: Store, target_url: str) -> None:
    with source.begin() as tx:
        assert tx.events.trim("one", keep=1) == 1
    with Store.open(target_url) as target:
        for stream in (None, "one"):
            with pytest.raises(Conflict, match="trimmed"):
                rebuild(source, target, stream)
        rebuild(source, target, "two")
        assert [session.id for session in target.chat.sessions.list().items] == ["two"]


def test_a_stream_that_leans_on_rows_of_another(source: Store, target_url: str) -> None:
    with source.begin() as tx:
        tx.conversations.sessions.create(id="a")
        tx.conversations.progressions.create("shared")
    with source.begin() as tx:
        tx.conversations.branches.create("a", id="b")
        tx.conversations.messages.record("b", {"id": "m", "created_at": 1.5, "role": "user", "content": "x"})
        tx.conversations.sessions.create(id="c")
        tx.conversations.branches.create("c", id="d", system_msg_id="m")
    with Store.open(target_url) as target, pytest.raises(Conflict, match="leans on rows"):
        rebuild(source, target, "conversation:c")
    assert not any(raw_rows(target_url)["sessions"])


@pytest.mark.parametrize(
    "data",
    [{"v": 2, "changes": []}, {"changes": []}, {"v": 1, "changes": [{"table": "strangers", "op": "put", "row": {}}]}],
    ids=["newer", "unversioned", "unknown table"],
)
def test_an_event_that_this_version_does_not_know(source: Store, target_url: str, data: Any) -> None:
    source.events.append("one", "session.painted", data)
    with Store.open(target_url) as target, pytest.raises(InvalidValue, match="event 4"):
        rebuild(source, target)
    assert not any(raw_rows(target_url)["chat_sessions"])


def test_events_of_callers_change_nothing(source: Store, target_url: str) -> None:
    anything: list[Any] = [None, [], "changes", {"a": 1}]
    with source.begin() as tx:
        for data in anything:
            tx.events.append("one", "noted", data)
    with Store.open(target_url) as target:
        rebuild(source, target)
    assert raw_rows(target_url) == raw_rows(source_url(source))


def source_url(store: Store) -> str:
    url = store.runtime.connections.writer.url
    return f"sqlite:///{store.path}" if store.path else url.set(drivername="postgresql").render_as_string(hide_password=False)
