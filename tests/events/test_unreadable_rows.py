"""A row that nobody can read keeps back the snapshot of its own stream alone when the log is switched on."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from persist import Store
from persist.errors import Conflict, UnreadableRow
from persist.events import rebuild
from persist.maintenance import doctor
from tests.contract.chat.scenes import create, say
from tests.contract.conftest import Raw
from tests.contract.events.scenes import events

SPOILT = {"sqlite": ("updated_at", "no instant"), "postgres": ("metadata_json", '"no object"')}


@pytest.fixture
def store(database_url: str) -> Any:
    with Store.open(database_url) as store:
        for name in ("a", "b", "c", "d"):
            say(store, create(store, id=name), "hi")
        yield store


def streams(store: Store) -> list[str]:
    return [event.stream_id for event in events(store) if event.type == "snapshot"]


def test_the_others_get_theirs_and_the_row_is_named(
    store: Store, backend: str, database_url: str, new_database: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    column, value = SPOILT[backend]
    with closing(Raw(database_url)) as raw:
        raw.rows(f"UPDATE chat_sessions SET {column} = ? WHERE id IN ('b', 'c')", value)
    for _ in range(2):
        with pytest.raises(UnreadableRow) as error:
            store.switch_events(True)
        assert (error.value.table, error.value.key, error.value.column) == ("chat_sessions", ("b",), column)
        assert streams(store) == ["a", "d"]
    assert store.logs_events
    caplog.clear()
    with Store.open(database_url, events=True) as other:
        assert other.logs_events
    assert "lacks the snapshot of a stream" in caplog.text
    with Store.open(new_database()) as target:
        with pytest.raises(Conflict, match="persist events on"):
            rebuild(store, target)
        assert any(found.fixed for found in doctor(store, fix=True))
        assert store.switch_events(True)
        assert store.switch_events(False)
        rebuild(store, target)
        assert [session.id for session in target.chat.sessions.list().items] == ["d", "a"]


@pytest.mark.parametrize("backend", ["postgres"])
def test_an_instant_that_the_driver_cannot_hold_is_named_as_well(store: Store, database_url: str) -> None:
    store.workflows.cron_overrides.set("nightly", enabled=False)
    with closing(Raw(database_url)) as raw:
        raw.rows("UPDATE cron_overrides SET updated_at = 'infinity'")
    with pytest.raises(UnreadableRow) as error:
        store.switch_events(True)
    assert (error.value.table, error.value.key, error.value.column) == ("cron_overrides", ("nightly",), "updated_at")
    assert streams(store) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_stream_whose_name_cannot_be_read_keeps_no_other_one_back(
    store: Store, database_url: str, new_database: Callable[[], str]
) -> None:
    with closing(Raw(database_url)) as raw:
        raw.rows("INSERT INTO chat_turns SELECT CAST(x'ff' AS TEXT), NULL, 'running', 'o', 1, 1, NULL")
    for _ in range(2):
        with pytest.raises(UnreadableRow):
            store.switch_events(True)
        assert streams(store) == ["a", "b", "c", "d"]
    with Store.open(new_database()) as target:
        with pytest.raises(Conflict, match="persist events on"):
            rebuild(store, target)
        assert any(found.fixed for found in doctor(store, fix=True))
        assert store.switch_events(True) in (True, False)
        rebuild(store, target)
        assert [session.id for session in target.chat.sessions.list().items] == ["d", "c", "b", "a"]
