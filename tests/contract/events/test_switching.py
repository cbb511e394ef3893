"""The log is off until somebody switches it on, for everybody; what was there before is its first event."""

import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from persist import Store
from persist.db.changes.journal import logged_tables
from persist.errors import InvalidValue, ReadOnlyTransaction, TransactionOpen
from persist.schema.metadata import metadata
from tests.contract.chat.scenes import create, record, say, text, turn
from tests.contract.conftest import Raw
from tests.contract.events.scenes import assert_gapless, events, kinds, rows_of
from tests.contract.faces import on_one_face
from tests.distributed_server import takes_triggers


def triggers(raw: Raw) -> int:
    """How many guards of the log the database has on tables of ours."""
    if raw.is_sqlite:
        return int(
            raw.value("SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND substr(name, 1, 19) = 'persist_event_guard'")
        )
    return int(raw.value("SELECT count(*) FROM pg_trigger WHERE left(tgname, 19) = 'persist_event_guard'"))


def test_a_log_that_nobody_switched_on_costs_the_database_nothing(store: Any, raw: Raw) -> None:
    session = create(store)
    record(store, session, turn(*text("hi")))
    assert not store.logs_events
    assert (raw.count("event_log"), raw.count("event_heads"), triggers(raw)) == (0, 0, 0)
    assert raw.rows("SELECT key FROM _meta") == [("schema_version",)]


def test_nothing_that_a_recorder_runs_returns_rows_while_the_log_is_off(counted_store: Any, statements: list[str]) -> None:
    session = create(counted_store)
    del statements[:]
    with counted_store.record(session) as recorder:
        recorder.feed_many(turn(*text("a", "b")))
    assert [statement for statement in statements if "event_" in statement] == []
    assert [
        statement for statement in statements if statement.startswith(("INSERT", "DELETE")) and "RETURNING" in statement
    ] == []


def test_a_store_of_a_database_that_logs_logs(open_store: Callable[..., Any], logging_store: Any) -> None:
    other = open_store()
    assert logging_store.logs_events
    assert other.logs_events
    session = create(other)
    assert kinds(logging_store) == ["session.created"]
    assert kinds(other, session) == ["session.created"]


def test_what_was_there_becomes_one_snapshot_of_each_stream_that_has_rows(store: Any) -> None:
    first, second = create(store), create(store)
    say(store, first, "one")
    with store.begin() as tx:
        run = tx.workflows.runs.create("build", trigger_id="t", current_phase="plan")
        tx.chat.prompts.put("be good")
    assert store.switch_events(True)
    found = events(store)
    assert {event.stream_id for event in found} == {first, second, "chat", f"workflow:{run.id}"}
    assert {event.type for event in found} == {"snapshot"}
    assert len(found) == 4
    assert_gapless(found)
    assert [row["id"] for row in rows_of(events(store, first), "chat_sessions")] == [first]
    assert len(rows_of(events(store, first), "chat_parts")) == 1
    assert rows_of(events(store, second), "chat_messages") == []


def test_switching_says_whether_it_changed_anything(store: Any) -> None:
    changed = [store.switch_events(on) for on in (True, True, False, False, True)]
    assert changed == [True, False, True, False, True]
    assert store.logs_events


def test_only_true_and_false_switch(store: Any) -> None:
    with pytest.raises(InvalidValue):
        store.switch_events(1)
    assert not store.logs_events
    assert events(store) == []


def test_nobody_switches_inside_a_transaction(store: Any) -> None:
    with store.begin(), pytest.raises(TransactionOpen):
        store.switch_events(True)
    assert not store.logs_events


def test_switched_off_the_events_stay_and_nothing_more_is_written(logging_store: Any, open_raw: Any, database_url: str) -> None:
    store = logging_store
    session = create(store)
    before = events(store)
    assert store.switch_events(False)
    say(store, session, "unseen")
    record(store, session, turn(*text("unseen")))
    raw = open_raw(database_url)
    assert not store.logs_events
    assert events(store) == before
    assert triggers(raw) == 0
    raw.rows("UPDATE chat_sessions SET agent = 'free'")
    assert raw.rows("SELECT agent FROM chat_sessions") == [("free",)]


def test_switched_on_again_it_goes_on_with_what_is_there_by_then(logging_store: Any) -> None:
    store = logging_store
    kept, gone = create(store), create(store)
    store.switch_events(False)
    say(store, kept, "unseen")
    store.chat.sessions.delete(gone)
    late = create(store)
    store.switch_events(True)
    say(store, kept, "seen")
    found = events(store)
    assert_gapless(found)
    again = [event for event in found if event.type == "snapshot"]
    assert {(event.stream_id, event.seq) for event in again} == {(kept, 2), (gone, 2), (late, 1)}
    snapshots = {event.stream_id: rows_of([event], "chat_messages") for event in again}
    assert [len(snapshots[id]) for id in (kept, gone, late)] == [1, 0, 0]
    assert kinds(store, kept)[-1] == "message.appended"


def test_a_large_stream_has_a_snapshot_in_several_events(store: Any) -> None:
    session = create(store)
    with store.begin() as tx:
        for number in range(700):
            tx.chat.messages.append(session, role="user", parts=[{"type": "text", "text": str(number)}])
    store.switch_events(True)
    found = events(store, session)
    assert [event.type for event in found] == ["snapshot", "snapshot.continued"]
    assert [event.data.get("more", False) for event in found] == [True, False]
    assert len(rows_of(found, "chat_messages")) == len(rows_of(found, "chat_parts")) == 700


def test_opening_with_events_false_switches_off(open_store: Callable[..., Any], logging_store: Any) -> None:
    assert not open_store(events=False).logs_events
    create(logging_store)
    assert not logging_store.logs_events
    assert events(logging_store) == []


def test_a_read_only_store_reads_the_log_and_switches_nothing(open_store: Callable[..., Any], logging_store: Any) -> None:
    create(logging_store)
    reader = open_store(read_only=True)
    assert reader.logs_events
    assert kinds(reader) == ["session.created"]
    with pytest.raises(ReadOnlyTransaction):
        reader.switch_events(False)
    assert reader.logs_events
    assert logging_store.logs_events
    with pytest.raises(ReadOnlyTransaction):
        open_store(read_only=True, events=False)


def test_a_file_in_memory_logs_too() -> None:
    with Store.open("sqlite:///:memory:", events=True) as store:
        session = create(store)
        record(store, session, turn(*text("a", "b")))
        found = events(store)
        assert_gapless(found)
        assert [event.type for event in store.watch(session, timeout=0)] == [event.type for event in events(store, session)]
        assert found[-1].stream_id == session


@pytest.mark.parametrize("stream", ["*"])
def test_no_session_may_be_called_as_all_streams_together(store: Any, stream: str) -> None:
    create(store, id=stream)
    with pytest.raises(InvalidValue, match="all streams"):
        store.switch_events(True)
    assert not store.logs_events
    assert events(store) == []
    store.chat.sessions.delete(stream)
    store.switch_events(True)
    with pytest.raises(InvalidValue, match="all streams"):
        create(store, id=stream)
    session = create(store)
    assert [(event.position, event.stream_id) for event in events(store)] == [(1, session)]


def test_a_session_may_be_called_as_the_shared_stream(store: Any) -> None:
    create(store, id="chat")
    say(store, "chat", "hi")
    store.switch_events(True)
    say(store, "chat", "again")
    found = events(store, "chat")
    assert [event.type for event in found] == ["snapshot", "message.appended"]
    assert len(rows_of(found, "chat_messages")) == 2


# While the log is on, the database itself refuses whoever writes without keeping it.


REFUSED = (sqlite3.OperationalError, psycopg.Error)


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


def test_every_table_but_a_few_is_in_a_stream() -> None:
    others = {table.name for table in metadata.sorted_tables} - {table.name for table in logged_tables(metadata.sorted_tables)}
    of_blobs = {"blobs", "blob_pieces", "chat_part_blobs", "app_artifact_blobs"}
    of_the_log = {"event_log", "event_heads", "event_consumers"}
    assert others == of_blobs | of_the_log | {"_meta", "quarantine", "raw_writes", "workflow_starts"}


@pytest.mark.one_server
def test_a_raw_insert_is_refused_and_changes_nothing(logging_store: Any, raw_of: Callable[[], Raw]) -> None:
    raw = raw_of()
    with pytest.raises(REFUSED):
        raw.rows("INSERT INTO system_prompts (digest, body, created_at) VALUES ('d', 'b', 0)")
    assert raw.count("system_prompts") == 0


# Small streams get their snapshots together when the log is switched on; large ones alone, and writers go on in between.


MANY = 120
GROUPS = 3


def sessions(store: Any, count: int) -> list[str]:
    with store.begin() as tx:
        return [tx.chat.sessions.create(agent="build", model={}).id for _ in range(count)]


def all_events(store: Any) -> list[Any]:
    """Every event, however many there are."""
    found = events(store, limit=1000)
    while more := events(store, after=found[-1].position, limit=1000):
        found += more
    return found


def snapshots(store: Any) -> dict[str, Any]:
    """The rows of each stream's snapshots, as many lists as it has snapshots."""
    found: dict[str, Any] = {}
    for event in all_events(store):
        if event.type.startswith("snapshot"):
            found.setdefault(event.stream_id, []).append([change["row"] for change in event.data["changes"]])
    return found


@on_one_face
def test_rows_of_many_streams_are_read_by_one_statement_for_each_table(counted_store: Any, statements: list[str]) -> None:
    names = sessions(counted_store, MANY)
    del statements[:]
    assert counted_store.switch_events(True)
    reading = [one for one in statements if "chat_turns" in one and one.startswith("SELECT") and "DISTINCT" not in one]
    assert len([one for one in reading if "of_stream" in one]) == GROUPS
    assert len(reading) < MANY / 2  # the others are for the streams that many share
    found = snapshots(counted_store)
    assert [[row["id"] for row in found[name][0]] for name in names] == [[name] for name in names]


@on_one_face
def test_streams_that_are_too_large_to_go_together_get_theirs_alone(store: Any) -> None:
    large, small = sessions(store, 4), sessions(store, 2)
    with store.begin() as tx:
        for name in large:
            tx.chat.messages.sync(
                name, [{"id": f"{name}-{at}", "role": "user", "parts": [{"type": "text", "text": "hi"}]} for at in range(150)]
            )
    assert store.switch_events(True)
    found = snapshots(store)
    assert {name: [len(rows) for rows in found[name]] for name in large} == {name: [301] for name in large}
    assert {name: [len(rows) for rows in found[name]] for name in small} == {name: [1] for name in small}
    assert_gapless(all_events(store))


@on_one_face
def test_no_verb_and_no_transact_is_refused_while_the_log_is_switched(store: Any, open_store: Any, database_url: str) -> None:
    names = sessions(store, MANY)
    writer = open_store()
    ended, refused, written = threading.Event(), list[BaseException](), list[str]()

    def write(transacts: bool) -> None:
        part = [{"type": "text", "text": "hi"}]
        number = 0
        try:
            while not ended.is_set() or number < 5:
                name = names[number % MANY]
                number += 1
                if transacts:
                    written.append(
                        writer.transact(lambda tx, name=name: tx.chat.messages.append(name, role="user", parts=part)).id
                    )
                else:
                    written.append(writer.chat.messages.append(name, role="user", parts=part).id)
        except BaseException as error:
            refused.append(error)

    threads = [threading.Thread(target=write, args=(bool(number % 2),)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert store.switch_events(True)
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)
    assert refused == []
    found = all_events(store)
    assert_gapless(found)
    logged = {change["row"]["id"] for event in found for change in event.data["changes"] if change["table"] == "chat_messages"}
    assert not takes_triggers(database_url) or logged == set(written)


def test_a_stream_without_rows_that_had_events_ends_with_an_empty_snapshot(store: Any) -> None:
    assert store.switch_events(True)
    gone, kept = create(store), create(store)
    say(store, kept, "hi")
    store.chat.sessions.delete(gone)
    assert store.switch_events(False)
    assert store.switch_events(True)
    found = snapshots(store)
    assert (found[gone], len(found[kept][0])) == ([[]], 3)
