"""A person is erased: nothing of that person remains, everything of everybody else does, in rows, in events and in bytes."""

from collections import Counter
from collections.abc import Callable
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
    without,
)
from tests.maintenance.pruning_scenes import gone
from tests.statement_log import seen_statements

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


def of_peter(found: dict[str, Counter[str]]) -> dict[str, list[str]]:
    return {table: sorted(row for row in of.elements() if "peter" in row) for table, of in found.items()}


def test_nothing_of_one_remains_and_all_of_the_other(people: Store, url: str, new_database: Callable[[], str]) -> None:
    """In rows, in events that the log has, of what was deleted before, too, and in a database that is made of the log."""
    store = people
    with store.begin() as tx:
        (session,) = (one.id for one in tx.chat.sessions.list(owner="maria").items if one.parent_id is None)
        gone_before = tx.chat.sessions.create(agent="a", model={}, owner="maria", metadata={"a": secret_of("maria")}).id
        tx.events.append("thread:maria-session", "noted", {"text": secret_of("maria")})
        tx.events.append("audit", "noted", {"text": "kept"})
        tx.events.consumers.create("index", at="now", types=["stream.erased"])
    store.chat.sessions.delete(gone_before)
    before, logged = rows(url), events(store)
    trial = erase(store, **MARIA, dry_run=True)
    assert (rows(url), events(store)) == (before, logged)
    report = erase(store, **MARIA)
    after, told = rows(url), events(store)
    same = ("selectors", "tables", "events", "files", "kept")
    assert {name: getattr(report, name) for name in same} == {name: getattr(trial, name) for name in same}
    assert (trial.dry_run, report.dry_run, report.total > 60, report.events > 60) == (True, False, True, True)
    assert {table.name for table in metadata.sorted_tables} - set(report.tables) == set(STAYING)

    assert places_of(url, secret_of("maria")) == set()
    assert places_of(url, "maria") <= NAMES_OF_STREAMS
    assert gone(before, after) == report.tables
    assert gone(after, before) == {}
    assert of_peter(before) == of_peter(after)
    kept = without(before, "maria", secret_of("maria"))
    assert all(kept[name] >= after[name] for name in after)
    assert [event for event in logged if "peter" in str(event)] == [event for event in told if "peter" in str(event)]

    # numbers stay, and the last event of a stream says so
    assert [event.position for event in told] == list(range(1, len(told) + 1))
    was, blank = {event.position: event for event in logged}, {"v": 1, "erased": True}
    for event in told:
        one = was.get(event.position)
        if one is None:
            assert (event.type, event.data) == ("stream.erased", blank)
        else:
            assert (event.stream_id, event.seq, event.type, event.at) == (one.stream_id, one.seq, one.type, one.at)
    of_session = [event for event in told if event.stream_id == session]
    assert [event.seq for event in of_session] == list(range(1, len(of_session) + 1))
    assert all(event.data == blank for event in of_session)
    assert [event.seq for event in store.watch(session, after=0, timeout=0)] == [event.seq for event in of_session]
    assert [event.data for event in store.events.read("audit")] == [{"text": "kept"}]
    heard = store.events.consumers.next("index", limit=1000).events
    assert {event.data["erased"] for event in heard} == {True}
    assert {event.stream_id for event in heard} >= {"conversation:maria-talk", "thread:maria-session", "program:maria-session"}

    after = rows(url)  # the consumer has moved on
    again = erase(store, **MARIA)
    assert (again.tables, again.events, again.files, again.kept) == ({}, 0, 0, {})
    assert (rows(url), events(store)) == (after, told)
    assert doctor(store) == []
    store.events.consumers.remove("index")
    rebuilt = new_database()
    with Store.open(rebuilt) as target:
        rebuild(store, target)
    assert folded(rebuilt) == folded(url)
    assert places_of(rebuilt, "maria") == set()


@pytest.mark.one_database
@pytest.mark.parametrize("log", ["none", "an old one"])
def test_where_nothing_is_logged(store: Store, url: str, log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In transactions of few rows each; the counts are of all."""
    monkeypatch.setattr("persist.db.operations.erasing.SOME", 7)
    monkeypatch.setattr("persist.events.erasing.SOME", 7)
    monkeypatch.setattr("persist.events.erasing._LOOK", 5)
    if log != "none":
        store.switch_events(True)
    person(store, "maria")
    person(store, "peter")
    if log != "none":
        store.switch_events(False)
    before = rows(url)
    report = erase(store, **MARIA)
    assert (report.events > 0) == (log != "none")
    assert gone(before, rows(url)) == report.tables
    assert places_of(url, "maria") <= (NAMES_OF_STREAMS if log != "none" else set())


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
        store.chat.sessions.create(agent="a", model={}, owner="maria")
        with Store.open(sqlite_url) as reader, reader.read() as tx:
            tx.chat.sessions.list()
            kept = erase(store, owner="maria").kept
    assert any("persist checkpoint" in reason for reason in kept)


@pytest.mark.one_database
def test_text_that_is_not_finished_goes(url: str) -> None:
    with Store.open(url, events=True, settings=Settings(fold_ms=3_600_000)) as store:  # nothing is folded by the clock
        session = store.chat.sessions.create(agent="a", model={}, owner="maria")
        recorder = store.record(session.id)
        recorder.feed({"type": "start"})
        recorder.feed({"type": "text-start", "id": "t"})
        for word in ("SECRET", "-of-", "maria"):
            recorder.feed({"type": "text-delta", "id": "t", "delta": word})
        tables = erase(store, owner="maria").tables
        assert (tables["chat_part_deltas"], tables["chat_turns"], tables["chat_parts"]) == (3, 1, 1)
        with pytest.raises((Conflict, NotFound)):
            recorder.feed({"type": "text-delta", "id": "t", "delta": "more"})
    assert places_of(url, "SECRET") == set()


def test_a_clock_that_is_behind_leaves_no_body(store: Store, url: str) -> None:
    """Another machine's clock, or that of this one before it was set back, was ahead as it put the blob."""
    with Store.open(url) as ahead:
        person(ahead, "maria")
    report = erase(store, **MARIA)
    assert places_of(url, secret_of("maria")) == set()
    assert not [what for what in report.kept if what.startswith("blobs")]


@pytest.mark.one_database
def test_what_is_written_under_the_name_later_stays(store: Store, clock: FrozenClock) -> None:
    store.chat.sessions.create(agent="a", model={}, owner="eve")
    erase(store, owner="eve")
    clock.advance(delta=timedelta(seconds=1))
    made = store.chat.sessions.create(agent="a", model={}, owner="eve")
    assert [one.id for one in store.chat.sessions.list(owner="eve").items] == [made.id]


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


@pytest.mark.one_database
def test_rows_without_what_they_belong_to_are_erased_by_its_id(store: Store, url: str) -> None:
    person(store, "maria")
    person(store, "peter")
    ids = delete_parents(url, "maria")
    before = rows(url)
    reports = [erase(store, session_id=id) for id in ids]
    after = rows(url)
    assert sum((Counter(report.tables) for report in reports), Counter()) == gone(before, after)
    assert sum(report.kept.get("messages: what is not erased shows them", 0) for report in reports) == 3
    assert of_peter(after) == of_peter(before)
    assert {"chat_parts", "checkpoint_states", "replay_messages", "executions", "bindings"} <= gone(before, after).keys()
    erase(store, owner="maria", namespace="people.maria")  # what such a row belongs to
    assert places_of(url, secret_of("maria")) <= LEFT


def test_rows_below_are_looked_for_in_the_statement_that_looks_for_what_they_belong_to(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = seen_statements(monkeypatch)
    with store.read() as tx:
        for name, kind in ROOTS.items():
            seen.clear()
            assert kind.find(work_of(tx), NAMESPACE if name == "memories" else SESSION, ["nobody"]) == []
            queries = [statement for statement in seen if "SELECT" in statement]
            assert len(queries) == 1, name
