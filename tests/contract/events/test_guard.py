"""While the log is on, the database itself refuses whoever writes without keeping it."""

import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from persist.db.changes.journal import logged_tables
from persist.schema.metadata import metadata
from tests.contract.chat.scenes import create, say
from tests.contract.conftest import Raw
from tests.contract.events.scenes import events

REFUSED = (sqlite3.OperationalError, psycopg.Error)
TABLES = [table.name for table in logged_tables(metadata.sorted_tables)]


@pytest.mark.one_server
@pytest.mark.parametrize("statement", ["DELETE FROM {0}", "UPDATE {0} SET {1} = {1}"])
@pytest.mark.parametrize("face", ["sync"])
def test_a_raw_writer_is_refused_in_every_table_that_is_logged(
    logging_store: Any, raw_of: Callable[[], Raw], statement: str
) -> None:
    raw = raw_of()
    for table in logged_tables(metadata.sorted_tables):
        with pytest.raises(REFUSED, match=r"event_log|log of events"):
            raw.rows(statement.format(table.name, f'"{table.columns[0].name}"'))
    assert events(logging_store) == []


@pytest.mark.one_server
def test_a_raw_insert_is_refused_and_changes_nothing(logging_store: Any, raw_of: Callable[[], Raw]) -> None:
    raw = raw_of()
    with pytest.raises(REFUSED):
        raw.rows("INSERT INTO system_prompts (digest, body, created_at) VALUES ('d', 'b', 0)")
    assert raw.count("system_prompts") == 0


def test_reading_is_as_free_as_ever(logging_store: Any, raw_of: Callable[[], Raw]) -> None:
    session = create(logging_store)
    say(logging_store, session, "hi")
    raw = raw_of()
    assert [raw.count(table) for table in ("chat_sessions", "chat_messages", "event_log")] == [1, 1, 2]


def test_switched_off_it_is_gone(logging_store: Any, raw_of: Callable[[], Raw]) -> None:
    create(logging_store)
    logging_store.switch_events(False)
    raw = raw_of()
    raw.rows("UPDATE chat_sessions SET agent = 'free'")
    raw.rows("DELETE FROM chat_sessions")
    assert raw.count("chat_sessions") == 0


def test_there_is_a_table_of_each_domain() -> None:
    assert {"chat_sessions", "workflow_runs", "messaging_sessions", "sessions", "tasks", "run"} <= set(TABLES)
    assert {"event_log", "event_heads", "_meta"}.isdisjoint(TABLES)
