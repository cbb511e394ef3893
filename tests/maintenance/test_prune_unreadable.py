"""What nobody can read, or bind again, stops no prune: it stays, and the rest goes as a dry run says."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from persist import Store
from persist.conversations.schemas import PruneReport
from persist.framework_state.app_sessions.schemas import ArtifactKey
from persist.maintenance.pruning import prune_conversations
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import message
from tests.contract.histories.scenes import chain, put, save
from tests.maintenance.pruning_scenes import DAY, month_old

LONG = "x" * 700


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    with Store.open(database_url, clock=clock) as store:
        yield store


@pytest.fixture
def writer(store: Store, database_url: str) -> Iterator[Raw]:
    with closing(Raw(database_url)) as writer:
        yield writer


def five_sessions(store: Store) -> None:
    with store.begin() as tx:
        for number in range(5):
            session = tx.conversations.sessions.create(id=f"s{number}", status="completed")
            tx.conversations.branches.create(session.id, id=f"b{number}")


def spoil(writer: Raw, what: str) -> None:
    """A label longer than any index takes, with all foreign keys kept."""
    if what == "branch":
        writer.rows("UPDATE branches SET id = ? WHERE id = 'b2'", LONG)
    else:
        writer.rows("INSERT INTO progressions (id, created_at) VALUES (?, 1)", LONG)
        table, id = ("branches", "b2") if what == "pool of a branch" else ("sessions", "s2")
        writer.rows(f"UPDATE {table} SET progression_id = ? WHERE id = ?", LONG, id)


@pytest.mark.parametrize("what", ["branch", "pool of a branch", "pool of a session"])
def test_a_session_with_a_label_that_is_too_long_is_left_alone(store: Store, writer: Raw, clock: FrozenClock, what: str) -> None:
    five_sessions(store)
    spoil(writer, what)
    clock.advance(delta=40 * DAY)
    dry = month_old(store, "conversations", dry_run=True)
    assert dry == {"branches": 4, "progressions": 8, "sessions": 4}
    assert prune_conversations(store, keep_days=30, keep_n=0, dry_run=True) == PruneReport(
        sessions=4, branches=4, progressions=8, messages=0
    )
    assert month_old(store, "conversations") == dry
    assert [session.id for session in store.conversations.sessions.list().items] == ["s2"]
    assert month_old(store, "conversations") == month_old(store, "conversations", dry_run=True) == {}


def test_a_message_with_an_id_that_is_too_long_stays(store: Store, writer: Raw, clock: FrozenClock) -> None:
    with store.begin() as tx:
        tx.conversations.messages.put_many([message(id) for id in "abc"])
        session = tx.conversations.sessions.create(id="s", status="completed")
        tx.conversations.progressions.replace(session.progression_id, ["a", "b"])
    for old in ("a", "c"):
        writer.rows("UPDATE messages SET id = ? WHERE id = ?", LONG + old, old)
    writer.rows("UPDATE progression_members SET message_id = ? WHERE message_id = 'a'", LONG + "a")
    clock.advance(delta=40 * DAY)
    for what, expected in (
        ("messages", {}),
        ("conversations", {"messages": 1, "progression_members": 2, "progressions": 1, "sessions": 1}),
    ):
        assert month_old(store, what, dry_run=True) == expected
        assert month_old(store, what) == expected
    assert writer.count("messages") == 2


def test_keys_of_several_columns_are_left_alone_as_well(store: Store, writer: Raw, clock: FrozenClock) -> None:
    with store.begin() as tx:
        for name in ("one", "two"):
            tx.telemetry.tags.record("repo", "m", instance_id=name)
    writer.rows("UPDATE agent_tags SET instance_id = ? WHERE instance_id = 'one'", LONG)
    clock.advance(delta=40 * DAY)
    dry = month_old(store, "telemetry", dry_run=True)
    assert month_old(store, "telemetry") == dry == {"agent_tags": 1}


@pytest.mark.parametrize("length", [100, 2])
def test_a_row_with_a_key_that_is_too_long_stays_and_the_rest_goes(
    store: Store, writer: Raw, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """However many rows one look for candidates finds."""
    for module in ("persist.maintenance.pruning", "persist.db.operations.pruning"):
        monkeypatch.setattr(f"{module}.MOST_CANDIDATES", length)
    with store.begin() as tx:
        for name in ("one", "two", "three", "four", "five"):
            run = tx.workflows.runs.create(name, trigger_id=name, current_phase="plan")
            tx.workflows.runs.finish(run.id, "succeeded")
            clock.advance(seconds=1)
    writer.rows("UPDATE workflow_runs SET id = ? WHERE workflow_name = 'two'", LONG)
    clock.advance(delta=40 * DAY)
    dry = month_old(store, "workflow_runs", dry_run=True)
    assert month_old(store, "workflow_runs") == dry == {"workflow_runs": 4}
    assert writer.rows("SELECT workflow_name FROM workflow_runs") == [("two",)]


def histories_that_share(store: Store) -> None:
    """Conversations that end in one tree of nine messages, at the ninth, fourth and third; runs of one message and of two."""
    with store.begin() as tx:
        put(tx, "long", "1", None, "i", chain("abcdefghi"))
        put(tx, "short", "1", None, "d", branches=["b"])
        put(tx, "shorter", "1", None, "c")
        save(tx, "s", 1, run="one")
        save(tx, "s", 1, run="two")
        save(tx, "st", 2, run="two")


@pytest.mark.parametrize(
    ("table", "id", "gone"),
    [("history_records", "long", 3), ("history_records", "short", 8), ("history_runs", "one", 11), ("history_runs", "two", 10)],
)
def test_what_a_history_that_nobody_can_read_holds_stays(
    store: Store, writer: Raw, clock: FrozenClock, table: str, id: str, gone: int
) -> None:
    """Its instant is older than any that persist writes, so that a condition in SQL takes it for old."""
    histories_that_share(store)
    writer.rows(f"UPDATE {table} SET updated_at = ? WHERE id = ?", -1e300 if table == "history_records" else -(2**62), id)
    clock.advance(delta=40 * DAY)
    for what in (table, "histories"):
        dry = month_old(store, what, dry_run=True)
        assert month_old(store, what) == dry
        gone -= dry.get("history_entries", 0)
    assert gone == 0
    assert writer.rows(f"SELECT id FROM {table}") == [(id,)]


@pytest.mark.parametrize("table", ["history_records", "history_runs"])
def test_what_is_left_of_a_history_that_a_raw_writer_deleted_holds_entries(
    store: Store, writer: Raw, clock: FrozenClock, table: str
) -> None:
    histories_that_share(store)
    if not writer.is_sqlite:
        writer.rows("SET session_replication_role = replica")
    writer.rows("DELETE FROM history_records WHERE id = 'short'")
    writer.rows("UPDATE history_snapshots SET run_id = 'gone' WHERE run_id = 'two' AND step_index = 1")
    clock.advance(delta=40 * DAY)
    dry = month_old(store, table, dry_run=True)
    assert month_old(store, table) == dry
    assert dry["history_entries"] == {"history_records": 7, "history_runs": 2}[table]


def test_a_session_that_nobody_can_read_keeps_its_artifacts(store: Store, writer: Raw, clock: FrozenClock) -> None:
    with store.begin() as tx:
        for session in ("one", "two"):
            tx.app_sessions.sessions.create("app", "maria", session)
            tx.app_sessions.artifacts.save(ArtifactKey("app", "maria", session, "notes.txt"), "{}")
    writer.rows("UPDATE app_user_sessions SET updated_at = ? WHERE session_id = 'one'", -(2**62))
    clock.advance(delta=40 * DAY)
    dry = month_old(store, "app_sessions", dry_run=True)
    assert month_old(store, "app_sessions") == dry
    assert (dry["app_user_sessions"], dry["app_artifacts"]) == (1, 1)
    assert writer.rows("SELECT session_id FROM app_artifacts") == [("one",)]
