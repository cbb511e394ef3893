"""A person is erased: nothing of that person remains, everything of everybody else does, in rows, in events and in bytes."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from persist import Store
from persist.db.operations.erasing import NAMESPACE, SESSION
from persist.errors import Conflict, NotFound, StoreFull
from persist.maintenance import checkpoint, doctor, erase, erasure_marks, export, rebuild
from persist.maintenance.erasure_plans import kinds
from persist.schema.metadata import metadata
from persist.settings import Settings
from persist.store.transaction import work_of
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.maintenance.erasing_scenes import (
    MARIA,
    NAMES_OF_STREAMS,
    events,
    files_of,
    folded,
    person,
    places_of,
    rows,
    secret_of,
    two_people,
    without,
)
from tests.maintenance.pruning_scenes import gone
from tests.statement_log import seen_statements


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    with two_people(database_url, clock) as store:
        yield store


def test_nothing_of_one_remains_and_all_of_the_other(store: Store, database_url: str) -> None:
    before, logged = rows(database_url), events(store)
    report = erase(store, **MARIA)
    after = rows(database_url)
    assert places_of(database_url, secret_of("maria")) == set()
    assert places_of(database_url, "maria") <= NAMES_OF_STREAMS
    assert gone(before, after) == report.tables
    assert gone(after, before) == {}
    kept = without(before, "maria", secret_of("maria"))
    assert {name: of["peter"] for name, of in _of_people(before, "peter").items()} == {
        name: of["peter"] for name, of in _of_people(after, "peter").items()
    }
    assert all(kept[name] >= after[name] for name in after)
    of_peter = [event for event in logged if "peter" in str(event)]
    assert of_peter == [event for event in events(store) if "peter" in str(event)]
    assert doctor(store) == []


def _of_people(found: dict[str, Any], name: str) -> dict[str, dict[str, list[str]]]:
    return {table: {name: sorted(row for row in of if name in row)} for table, of in found.items()}


def test_a_dry_run_counts_the_same_and_changes_nothing(store: Store, database_url: str) -> None:
    before, logged = rows(database_url), events(store)
    trial = erase(store, **MARIA, dry_run=True)
    assert (rows(database_url), events(store)) == (before, logged)
    report = erase(store, **MARIA)
    same = ("selectors", "tables", "events", "files", "kept")
    assert {name: getattr(report, name) for name in same} == {name: getattr(trial, name) for name in same}
    assert (trial.dry_run, report.dry_run) == (True, False)
    assert report.total > 60
    assert report.events > 60


def test_again_there_is_nothing(store: Store, database_url: str) -> None:
    erase(store, **MARIA)
    before, logged = rows(database_url), events(store)
    again = erase(store, **MARIA)
    assert (again.tables, again.events, again.files, again.kept) == ({}, 0, 0, {})
    assert (rows(database_url), events(store)) == (before, logged)


# ---------------------------------------------------------------- the event log


def test_numbers_stay_and_the_last_event_of_a_stream_says_so(store: Store) -> None:
    before = {event.position: event for event in events(store)}
    with store.read() as tx:
        (session,) = (one.id for one in tx.chat.sessions.list(owner="maria").items if one.parent_id is None)
    erase(store, **MARIA)
    after = events(store)
    assert [event.position for event in after] == list(range(1, len(after) + 1))
    for event in after:
        if event.position in before:
            was = before[event.position]
            assert (event.stream_id, event.seq, event.type, event.at) == (was.stream_id, was.seq, was.type, was.at)
        else:
            assert (event.type, event.data) == ("stream.erased", {"v": 1, "erased": True})
    of_session = [event for event in after if event.stream_id == session]
    assert [event.seq for event in of_session] == list(range(1, len(of_session) + 1))
    assert {str(event.data) for event in of_session} == {str({"v": 1, "erased": True})}
    assert [event.seq for event in store.watch(session, after=0, timeout=0)] == [event.seq for event in of_session]


def test_a_consumer_is_told(store: Store) -> None:
    with store.begin() as tx:
        tx.events.consumers.create("index", at="now", types=["stream.erased"])
    erase(store, **MARIA)
    told = store.events.consumers.next("index", limit=1000).events
    assert {event.data["erased"] for event in told} == {True}
    assert {event.stream_id for event in told} >= {"conversation:maria-talk", "thread:maria-session", "program:maria-session"}


def test_a_rebuild_gives_the_erased_state(store: Store, database_url: str, new_database: Callable[[], str]) -> None:
    erase(store, **MARIA)
    url = new_database()
    with Store.open(url) as target:
        rebuild(store, target)
    assert folded(url) == folded(database_url)
    assert places_of(url, "maria") == set()


def test_what_was_deleted_before_leaves_the_log_too(store: Store, database_url: str) -> None:
    with store.begin() as tx:
        for session in tx.chat.sessions.list(owner="maria").items:
            tx.chat.sessions.delete(session.id)
    erase(store, **MARIA)
    assert places_of(database_url, secret_of("maria")) == set()


def test_an_event_of_a_host_in_a_stream_of_the_person_goes(store: Store, database_url: str) -> None:
    with store.begin() as tx:
        tx.events.append("thread:maria-session", "noted", {"text": secret_of("maria")})
        tx.events.append("audit", "noted", {"text": "kept"})
    erase(store, **MARIA)
    assert places_of(database_url, secret_of("maria")) == set()
    with store.read() as tx:
        assert [event.data for event in tx.events.read("audit")] == [{"text": "kept"}]


def test_without_a_log(database_url: str) -> None:
    with Store.open(database_url) as store:
        person(store, "maria")
        person(store, "peter")
        before = rows(database_url)
        report = erase(store, **MARIA)
        assert report.events == 0
        assert gone(before, rows(database_url)) == report.tables
        assert places_of(database_url, "maria") == set()


def test_an_old_log_that_is_off(database_url: str) -> None:
    with Store.open(database_url, events=True) as store:
        person(store, "maria")
        store.switch_events(False)
        erase(store, **MARIA)
        assert places_of(database_url, secret_of("maria")) == set()


# ---------------------------------------------------------------- bytes


def test_no_byte_of_it_is_in_the_file(sqlite_url: str, tmp_path: Path) -> None:
    secret = secret_of("maria").encode()
    with Store.open(sqlite_url, events=True) as store:
        person(store, "maria")
        person(store, "peter")
        assert any(secret in path.read_bytes() for path in files_of(sqlite_url))
        report = erase(store, **MARIA)
        assert sorted(reason.partition(":")[0] for reason in report.kept) == ["files of subagents", "system_prompts"]
        assert [path for path in files_of(sqlite_url) if secret in path.read_bytes()] == []
        export(store, tmp_path / "all.jsonl")
        assert secret not in (tmp_path / "all.jsonl").read_bytes()
        assert secret_of("peter").encode() in (tmp_path / "all.jsonl").read_bytes()
    assert [path for path in tmp_path.iterdir() if path.is_file() and secret in path.read_bytes()] == []


def test_no_byte_of_what_was_written_down_is_left(sqlite_url: str) -> None:
    """The note of the erasure names the person, and goes from the write-ahead log, too, while the store stays open."""
    name = "a-name-that-only-the-owner-has"
    with Store.open(sqlite_url, events=True) as store:
        store.chat.sessions.create(agent="a", model={}, owner=name)
        assert erase(store, owner=name).tables == {"chat_sessions": 1}
        assert [path for path in files_of(sqlite_url) if name.encode() in path.read_bytes()] == []


def test_a_reader_of_what_was_written_down_is_reported(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins to read when all else is done."""
    name, finish = "a-name-that-only-the-owner-has", erasure_marks.finish
    with Store.open(sqlite_url) as store, Store.open(sqlite_url) as other, ExitStack() as stack:

        def with_a_reader(*given: Any, **named: Any) -> Any:
            stack.enter_context(other.read()).chat.sessions.list()
            return finish(*given, **named)

        monkeypatch.setattr("persist.maintenance.erasing.marks.finish", with_a_reader)
        store.chat.sessions.create(agent="a", model={}, owner=name)
        (reason,) = erase(store, owner=name).kept
        assert "persist checkpoint" in reason
        stack.close()
        checkpoint(store, "TRUNCATE")
        assert [path for path in files_of(sqlite_url) if name.encode() in path.read_bytes()] == []


def test_bytes_are_overwritten_where_the_file_cannot_be_rewritten(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rewrite of the file would hide that nothing was overwritten, and so would a SQLite that always overwrites."""

    def fails(*_: Any) -> None:
        raise StoreFull("state.db")

    monkeypatch.setattr("persist.maintenance.backups.vacuum", fails)
    secret = secret_of("maria").encode()
    with Store.open(sqlite_url, events=True) as store:
        with store.begin() as tx:
            work_of(tx).select(text("PRAGMA secure_delete=OFF"))
            tx.transcripts.entries.append("-w", MARIA["session_id"], [{"type": "user", "x": secret_of("maria")}])
        assert any(secret in path.read_bytes() for path in files_of(sqlite_url))
        assert [reason for reason in erase(store, **MARIA).kept if "persist vacuum" in reason]
        assert [path for path in files_of(sqlite_url) if secret in path.read_bytes()] == []


def test_a_reader_that_keeps_the_log_is_reported(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        person(store, "maria")
        with Store.open(sqlite_url) as reader, reader.read() as tx:
            tx.chat.sessions.list()
            kept = erase(store, **MARIA).kept
    assert any("persist checkpoint" in reason for reason in kept)


# ---------------------------------------------------------------- every table

STAYING = {
    "_meta": "facts about the database",
    "app_state": "what all users of an application share",
    "cron_overrides": "what an operator said",
    "event_consumers": "readers of the log",
    "event_heads": "numbers of streams, which stay",
    "event_log": "events keep their numbers, and lose what they say",
    "exchange_cursors": "of branches of an erased conversation: see the test of conversations",
    "history_branches": "of an erased history: see records.erase",
    "message_types": "names of classes",
    "quarantine": "copies of rows: see the test of the quarantine",
    "raw_writes": "of an erased run: see tests/programs/test_raw_writes.py",
    "tasks": "those of a workspace, which nobody owns",
    "workflow_limits": "what an operator said",
    "workflow_overrides": "what an operator said",
    "workflow_schedules": "what an operator said",
    "workflow_starts": "instants of claims",
    "workflow_waits": "of an erased run: the foreign key deletes them, too",
    "chat_part_deltas": "of an erased chat: see the test of unfinished text",
    "chat_turns": "of an erased chat: see the test of unfinished text",
}
"""Why tables have no rows in the report of a person of whom there is one of everything."""


def test_every_table_is_erased_or_has_a_reason_to_stay(store: Store) -> None:
    tables = set(erase(store, **MARIA).tables)
    assert {table.name for table in metadata.sorted_tables} - tables == set(STAYING)


def test_text_that_is_not_finished_goes(database_url: str) -> None:
    with Store.open(database_url, events=True, settings=Settings(fold_ms=3_600_000)) as store:  # nothing is folded by the clock
        with store.begin() as tx:
            session = tx.chat.sessions.create(agent="a", model={}, owner="maria")
        recorder = store.record(session.id)
        recorder.feed({"type": "start"})
        recorder.feed({"type": "text-start", "id": "t"})
        for word in ("SECRET", "-of-", "maria"):
            recorder.feed({"type": "text-delta", "id": "t", "delta": word})
        tables = erase(store, owner="maria").tables
        assert (tables["chat_part_deltas"], tables["chat_turns"], tables["chat_parts"]) == (3, 1, 1)
        with pytest.raises((Conflict, NotFound)):
            recorder.feed({"type": "text-delta", "id": "t", "delta": "more"})
    assert places_of(database_url, "SECRET") == set()


# ---------------------------------------------------------------- in steps


def test_steps_are_bounded(store: Store, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with many messages goes in transactions of so many rows, and the counts are of all."""
    monkeypatch.setattr("persist.db.operations.erasing.SOME", 7)
    monkeypatch.setattr("persist.events.erasing.SOME", 7)
    monkeypatch.setattr("persist.events.erasing._LOOK", 5)
    before = rows(database_url)
    report = erase(store, **MARIA)
    assert gone(before, rows(database_url)) == report.tables
    assert places_of(database_url, secret_of("maria")) == set()


def test_what_is_written_under_the_name_later_stays(store: Store, clock: FrozenClock) -> None:
    erase(store, owner="maria")
    clock.advance(delta=timedelta(seconds=1))
    with store.begin() as tx:
        made = tx.chat.sessions.create(agent="a", model={}, owner="maria")
    with store.read() as tx:
        assert [one.id for one in tx.chat.sessions.list(owner="maria").items] == [made.id]


# Rows below a session whose own row a shell deleted, where foreign keys were off, are erased by its id.


ROOTS = {name: kind for name, kind in kinds(trial=False).items() if kind.further and kind.own_streams}
"""What is erased with rows below it that hold its id."""
LEFT = {
    ("messages", "content"),
    ("messages", "node_metadata"),
    ("history_entries", "message_json"),
    ("history_entries", "extra_json"),
}
"""Messages that a place of a gone conversation still shows, and those that only the row of a history led to."""


def delete_parents(url: str, name: str) -> list[str]:
    """Delete what names somebody from these tables as a shell does that checks no foreign keys; the ids that stood there."""
    ids: list[str] = []
    with closing(Raw(url)) as raw:
        if not raw.is_sqlite:
            raw.rows("SET session_replication_role = replica")
        for table, kind in ROOTS.items():
            (key,) = kind.key
            at = [column.name for column in kind.table.columns].index(key)
            found = {str(row[at]) for row in raw.rows(f"SELECT * FROM {table}") if name in str(row)}
            assert found, table
            for id in found:
                raw.rows(f"DELETE FROM {table} WHERE {key} = ?", id)
            ids += found
    return [*dict.fromkeys(ids)]


def test_rows_without_what_they_belong_to_are_erased_by_its_id(database_url: str, clock: FrozenClock) -> None:
    with Store.open(database_url, clock=clock) as store:
        person(store, "maria")
        person(store, "peter")
        ids = delete_parents(database_url, "maria")
        before = rows(database_url)
        reports = [erase(store, session_id=id) for id in ids]
        after = rows(database_url)
        assert sum((Counter(report.tables) for report in reports), Counter()) == gone(before, after)
        assert sum(report.kept.get("messages: what is not erased shows them", 0) for report in reports) == 3
        assert _naming(after, "peter") == _naming(before, "peter")
        assert {"chat_parts", "checkpoint_states", "replay_messages", "executions", "bindings"} <= gone(before, after).keys()
        erase(store, owner="maria", namespace="people.maria")  # what such a row belongs to
        assert places_of(database_url, secret_of("maria")) <= LEFT


def _naming(found: dict[str, Counter[str]], name: str) -> dict[str, list[str]]:
    return {table: sorted(row for row in of.elements() if name in row) for table, of in found.items()}


def test_rows_below_are_looked_for_in_the_statement_that_looks_for_what_they_belong_to(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = seen_statements(monkeypatch)
    with Store.open(database_url) as store, store.read() as tx:
        for name, kind in ROOTS.items():
            seen.clear()
            assert kind.find(work_of(tx), NAMESPACE if name == "memories" else SESSION, ["nobody"]) == []
            queries = [statement for statement in seen if "SELECT" in statement]
            assert len(queries) == 1, name
