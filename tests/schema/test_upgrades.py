"""Upgrades of kept databases, and to revisions that do not exist yet: data stays, old code goes on, a failure changes nothing."""

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import persist
from persist import Store
from persist.schema.metadata import HEAD, REVISIONS
from persist.testing import FrozenClock
from tests.schema.catalog import sqlite_catalog
from tests.schema.conftest import Plant
from tests.schema.filling import LONG, fill, transcript
from tests.schema.places import Place

ADDS = """
op.add_column("chat_sessions", sa.Column("lane", sa.Text(), server_default="main", nullable=False))
op.create_table("chat_lanes", sa.Column("name", sa.Text(), primary_key=True))
op.create_index("ix_chat_sessions_lane", "chat_sessions", ["lane"])
"""
RAISES = """
op.create_table("chat_halves", sa.Column("name", sa.Text(), primary_key=True))
op.execute("UPDATE chat_sessions SET agent = 'half way'")
raise ValueError("planted")
"""


def test_an_upgrade_keeps_the_data_and_old_code_goes_on(migrated: Place, clock: FrozenClock, plant: Plant) -> None:
    with ExitStack() as stack:
        old = stack.enter_context(persist.Store.open(migrated.url, clock=clock, settings=LONG))
        running = fill(old, clock, stack)
        before, rows = transcript(old), migrated.rows("chat_messages", "chat_parts", "chat_part_deltas", "chat_step_usage")

        (number,) = plant(ADDS)
        persist.upgrade(migrated.url)

        assert persist.current(migrated.url) == number
        assert transcript(old) == before
        assert migrated.rows(*rows) == rows
        assert migrated.ask(f"SELECT DISTINCT lane FROM {migrated.named('chat_sessions')}") == [("main",)]
        with persist.Store.open(migrated.url, clock=clock, settings=LONG) as new:
            assert transcript(new) == before
        running.feed({"type": "text-delta", "id": "t1", "delta": "ished"})
        with old.begin() as tx:
            tx.chat.sessions.create(agent="old code", model={})
    assert migrated.ask(f"SELECT lane FROM {migrated.named('chat_sessions')} WHERE agent = 'old code'") == [("main",)]


def test_opening_upgrades_a_file_and_only_checks_postgres(migrated: Place, plant: Plant) -> None:
    (number,) = plant(ADDS)
    if migrated.is_postgres:
        with pytest.raises(persist.SchemaOutdated) as caught:
            persist.Store.open(migrated.url)
        assert (caught.value.found, caught.value.known) == (HEAD, number)
        persist.Store.open(migrated.url, migrate=True).close()
    else:
        with pytest.raises(persist.SchemaOutdated):
            persist.Store.open(migrated.url, migrate=False)
        assert persist.current(migrated.url) == HEAD
        persist.Store.open(migrated.url).close()
    assert persist.current(migrated.url) == number
    persist.check(migrated.url)


def test_an_upgraded_database_is_made_of_the_same_facts_as_a_new_one(
    migrated: Place, empty_database: Callable[[], Place], plant: Plant
) -> None:
    plant(ADDS, 'op.add_column("chat_lanes", sa.Column("size", sa.BigInteger()))')
    persist.upgrade(migrated.url)
    fresh = empty_database()
    persist.upgrade(fresh.url)
    assert migrated.catalog() ^ fresh.catalog() == set()
    assert migrated.rows() == fresh.rows()


@pytest.mark.parametrize("bodies", [(RAISES,), (ADDS, RAISES), (ADDS, ADDS.replace("lane", "road"), RAISES)])
def test_a_failing_revision_changes_nothing(migrated: Place, clock: FrozenClock, plant: Plant, bodies: tuple[str, ...]) -> None:
    with ExitStack() as stack:
        fill(stack.enter_context(persist.Store.open(migrated.url, clock=clock, settings=LONG)), clock, stack)
    before = migrated.catalog(), migrated.rows()
    numbers = plant(*bodies)
    with pytest.raises(persist.MigrationFailed, match="planted") as caught:
        persist.upgrade(migrated.url)
    error = caught.value
    assert (error.from_version, error.to_version, error.revision) == (HEAD, numbers[-1], numbers[-1])
    assert error.path == (migrated.schema or str(migrated.path))
    assert isinstance(error.__cause__, ValueError)
    assert (migrated.catalog(), migrated.rows()) == before


def test_after_a_failing_revision_the_older_code_still_opens(
    migrated: Place, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(RAISES)
    with pytest.raises(persist.MigrationFailed):
        persist.upgrade(migrated.url)
    monkeypatch.undo()
    persist.check(migrated.url)
    with persist.Store.open(migrated.url) as store, store.begin() as tx:
        tx.chat.sessions.create(agent="build", model={})


def test_a_failing_first_upgrade_leaves_no_table(empty_database: Callable[[], Place], plant: Plant) -> None:
    place = empty_database()
    (number,) = plant(RAISES)
    with pytest.raises(persist.MigrationFailed) as caught:
        persist.upgrade(place.url)
    assert (caught.value.from_version, caught.value.revision) == (None, number)
    assert persist.current(place.url) is None
    if place.is_postgres:
        assert place.ask("SELECT 1 FROM pg_namespace WHERE nspname = 'persist'") == []
    else:
        assert place.catalog() == set()


def test_a_database_error_in_a_revision_is_named(migrated: Place, plant: Plant) -> None:
    (number,) = plant('op.execute("UPDATE chat_nothing SET x = 1")')
    with pytest.raises(persist.MigrationFailed, match="chat_nothing") as caught:
        persist.upgrade(migrated.url)
    assert caught.value.revision == number
    assert persist.current(migrated.url) == HEAD


def test_opening_a_file_whose_upgrade_fails(sqlite_url: str, plant: Plant) -> None:
    place = Place(sqlite_url)
    persist.upgrade(sqlite_url)
    before = place.catalog(), place.rows()
    plant(RAISES)
    with pytest.raises(persist.MigrationFailed):
        persist.Store.open(sqlite_url)
    assert (place.catalog(), place.rows()) == before


# A file of every released revision opens with this code, and reads as it did when it was written.


FOLDER = Path(__file__).with_name("databases")

MAX_BYTES = 380 * 1024
FILLED = {
    "0001": [
        *("chat_sessions", "chat_messages", "chat_parts", "chat_part_deltas", "chat_turns"),
        *("chat_step_usage", "system_prompts"),
    ],
    "0002": [
        *("workflow_runs", "executions", "workflow_approvals", "cron_overrides", "workflow_overrides"),
        *("messaging_sessions", "messaging_messages"),
    ],
    "0003": [
        *("message_types", "messages", "progressions", "progression_members", "sessions", "branches", "status_transitions"),
        *("exchange_items", "exchange_cursors"),
    ],
    "0004": [
        *("status_log", "agent_tags", "github_link_statuses", "usage_samples", "tool_history", "window_marks", "tasks"),
        *("run", "execution", "bindings", "agents", "agent_segments", "imports"),
    ],
    "0005": ["event_log", "event_heads"],
    "0006": [
        *("checkpoint_threads", "checkpoint_states", "checkpoint_values", "checkpoint_pieces", "checkpoint_writes"),
        *("memories", "memory_vectors"),
    ],
    "0010": [
        *("history_records", "history_branches", "history_entries", "history_runs", "history_run_events"),
        *("history_snapshots", "history_tool_effects"),
    ],
    "0011": ["transcript_sessions", "transcript_entries"],
    "0012": [
        *("app_user_sessions", "app_session_events", "app_session_state", "app_state", "app_user_state", "app_artifacts"),
        *("app_artifact_versions", "app_memories"),
    ],
    "0013": ["replay_sessions", "replay_messages", "agent_task_records", "agent_task_pieces", "agent_task_webhooks"],
    "0015": ["blobs", "blob_pieces", "chat_part_blobs"],
    "0017": ["app_artifact_blobs"],
    "0018": ["workflow_signals", "workflow_waits"],
    "0019": ["event_consumers"],
    "0021": ["workflow_schedules"],
    "0024": ["workflow_limits", "workflow_starts"],
    "0029": ["program_subagents"],
    "0030": ["raw_writes"],
    "0031": ["usage_calls", "usage_rollups", "usage_budgets", "usage_spending"],
}
"""The tables that a file of that revision, or of a later one, has rows in."""


def kept(revision: str, tmp_path: Path) -> tuple[Place, dict[str, Any]]:
    """A copy of the file, since opening upgrades it, and what was seen in it."""
    path = tmp_path / "state.db"
    shutil.copyfile(FOLDER / f"{revision}.db", path)
    return Place(f"sqlite:///{path.as_posix()}"), json.loads((FOLDER / f"{revision}.json").read_text(encoding="utf-8"))


def assert_reads_as_written(store: Store, written: dict[str, Any]) -> None:
    seen = transcript(store)
    assert seen["messages"] == written["messages"]
    assert seen["queued"] == written["queued"]
    # a later revision may add tables and fields; what was written stays what it was
    for kind in seen.keys() - {"messages", "queued"}:
        records = written.get(kind, {})
        assert seen[kind].keys() == records.keys()
        for id, record in records.items():
            assert {name: seen[kind][id][name] for name in record} == record


def test_every_revision_has_its_file() -> None:
    expected = {f"{revision}.{kind}" for revision in REVISIONS for kind in ("db", "json")}
    assert {path.name for path in FOLDER.glob("0*")} == expected
    assert all(path.stat().st_size < MAX_BYTES for path in FOLDER.iterdir() if path.is_file())


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_kept_file_is_upgraded_reads_as_it_was_written_and_goes_on(revision: str, tmp_path: Path) -> None:
    place, written = kept(revision, tmp_path)
    assert place.rows("_meta")["_meta"] == [("'schema_version'", repr(revision))]
    filled = [table for since, tables in FILLED.items() if since <= revision for table in tables]
    assert [table for table, rows in place.rows(*filled).items() if not rows] == []

    with Store.open(place.url) as store:
        assert_reads_as_written(store, written)
    # the dead process's tail was folded on opening, and that changed nothing that a reader sees
    assert place.rows("chat_part_deltas") == {"chat_part_deltas": []}

    fresh = tmp_path / "fresh.db"
    Store.open(f"sqlite:///{fresh.as_posix()}").close()
    assert place.catalog() ^ sqlite_catalog(str(fresh)) == set()
    assert place.rows("_meta") == Place(f"sqlite:///{fresh.as_posix()}").rows("_meta")

    with Store.open(place.url) as again:
        assert_reads_as_written(again, written)
        assert_turn_goes_on(again, place, written)


def assert_turn_goes_on(store: Store, place: Place, written: dict[str, Any]) -> None:
    (session_id,) = {row[0] for row in place.ask("SELECT session_id FROM chat_turns")}
    with store.record(session_id) as recorder:
        for chunk in (
            {"type": "start"},
            {"type": "text-start", "id": "1"},
            {"type": "text-delta", "id": "1", "delta": "on"},
            {"type": "finish"},
        ):
            recorder.feed(chunk)
    added = transcript(store)["messages"][session_id][len(written["messages"][session_id]) :]
    assert [part["text"] for message in added for part in message["parts"]] == ["on"]
