"""What telemetry and programs give up, and what they keep however old it is."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from persist import Store
from persist.conversations.schemas import PruneReport
from persist.framework_state.app_sessions.schemas import ArtifactKey
from persist.maintenance import prune
from persist.maintenance.pruning import prune_conversations
from persist.programs import models as programs
from persist.single_owner_files import create_run_file
from persist.testing import FrozenClock
from tests.contract.conftest import Raw
from tests.contract.conversations.scenes import message
from tests.contract.histories.scenes import chain, put, save
from tests.maintenance.pruning_scenes import DAY, age, month_old


@pytest.fixture
def store(database_url: str, clock: FrozenClock) -> Iterator[Store]:
    with Store.open(database_url, clock=clock) as store:
        yield store


# ---------------------------------------------------------------- telemetry


def test_the_status_that_an_instance_has_stays(store: Store, clock: FrozenClock) -> None:
    with store.begin() as tx:
        for instance in ("a", "b"):
            for status in ("idle", "busy", "idle"):
                tx.telemetry.status.record(status, instance_id=instance)
    age(clock)
    assert month_old(store, "telemetry") == {"status_log": 4}
    with store.read() as tx:
        assert [tx.telemetry.status.current(instance_id=instance).new_status for instance in ("a", "b")] == ["idle", "idle"]  # type: ignore[union-attr]  # both have one


def test_the_newest_are_those_that_were_written_last(store: Store, clock: FrozenClock) -> None:
    """The status that an instance has, and what `keep` spares, whatever its clock said before."""
    me: dict[str, Any] = {"instance_id": "a"}
    ahead = 10 * DAY
    with store.begin() as tx:
        for status, at in (("ahead", clock() + ahead), ("behind", clock()), ("now", clock())):
            tx.telemetry.status.record(status, at=at, **me)
            tx.telemetry.tools.record(status, at=at, **me)
        for seconds, at in ((0, clock() + ahead), (1, clock()), (2, clock())):
            tx.telemetry.usage.sample(at=at + seconds * timedelta(seconds=1), token_input=seconds, **me)
    age(clock)
    assert month_old(store, "status_log") == {"status_log": 1}
    assert month_old(store, "tool_history", keep=1) == {"tool_history": 1}
    assert month_old(store, "usage_samples", keep=1) == {"usage_samples": 1}
    age(clock)
    assert month_old(store, "telemetry", keep=1) == {"status_log": 1, "tool_history": 1, "usage_samples": 1}
    with store.read() as tx:
        current = tx.telemetry.status.current(**me)
        assert current is not None
        assert current.new_status == "now"
        assert [call.tool_key for call in tx.telemetry.tools.last(**me)] == ["now"]
        assert tx.telemetry.usage.totals(**me).token_input == 2


def test_keep_counts_within_an_instance(store: Store, clock: FrozenClock) -> None:
    with store.begin() as tx:
        for number in range(10):
            tx.telemetry.tools.record("bash", instance_id="a" if number < 7 else "b")
            clock.advance(seconds=1)
    age(clock)
    assert month_old(store, "tool_history", keep=4) == {"tool_history": 3}
    with store.read() as tx:
        assert [len(tx.telemetry.tools.last(instance_id=instance)) for instance in ("a", "b")] == [4, 3]


def test_of_tasks_only_those_that_are_over_go(store: Store, clock: FrozenClock) -> None:
    me: dict[str, Any] = {"workspace_id": "w"}
    names = ("queued", "in_progress", "completed", "failed", "cancelled")
    with store.begin() as tx:
        tasks = tx.telemetry.tasks
        tasks.poll([{"id": name, "source_id": "s", "kind": "k", "title": "t"} for name in names], **me)
        tasks.cancel("cancelled", **me)
        claimed = [tasks.claim("box", max_parallel=9, **me) for _ in range(4)]
        for one in claimed:
            assert one is not None
        tasks.complete("completed", **me)
        tasks.fail("failed", **me)
    age(clock)
    assert month_old(store, "telemetry") == {"tasks": 2}
    with store.read() as tx:
        assert {task.id for task in tx.telemetry.tasks.list(**me)} == {"queued", "in_progress", "failed"}


def test_a_link_that_is_still_looked_at_stays(store: Store, clock: FrozenClock) -> None:
    me: dict[str, Any] = {"instance_id": "box"}
    url = "https://github.com/example/project/issues/"
    with store.begin() as tx:
        tx.telemetry.links.upsert(f"{url}1", fetched_at=clock(), issue_state="open", **me)
        tx.telemetry.links.record_error(f"{url}2", "no answer", **me)
    age(clock)
    with store.begin() as tx:
        tx.telemetry.links.record_error(f"{url}3", "no answer", **me)
    assert month_old(store, "telemetry") == {"github_link_statuses": 2}


# ---------------------------------------------------------------- programs


def test_an_ended_run_goes_with_all_of_it_and_names_its_attachments(store: Store, clock: FrozenClock) -> None:
    with store.begin() as tx:
        verbs = tx.programs
        for id in ("over", "running"):
            verbs.runs.create(id=id)
            frame = verbs.executions.begin(id, statement_index=1, statement_text="do")
            verbs.executions.begin(id, statement_index=2, statement_text="do", parent_id=frame.id)
            verbs.bindings.bind(id, "x", "1", kind="let")
            verbs.agents.start(id, "captain", resume=False)
            verbs.agents.add_segment(id, "captain", prompt="p", summary="s")
            verbs.imports.add(id, "alias", "https://example.com/p")
            verbs.subagents.start(id, isolation="file")
        verbs.runs.finish("over", "completed")
        tx._work._core(
            update(programs.bindings).where(programs.bindings.c.run_id == "over").values(attachment_path="attachments/x.md"), None
        )
    age(clock)
    report = prune(store, "programs", older_than=30 * DAY)
    once = ("run", "bindings", "agents", "agent_segments", "imports", "program_subagents")
    assert report.tables == {"execution": 2, **dict.fromkeys(once, 1)}
    assert report.files == ["over: attachments/x.md"]


def test_a_run_stays_in_its_own_file(tmp_path: Path, clock: FrozenClock) -> None:
    with create_run_file(tmp_path, clock=clock) as store:
        with store.begin() as tx:
            tx.programs.bindings.bind(store.run_id or "", "x", "1", kind="let")
            tx.programs.runs.finish(store.run_id or "", "completed")
            tx.programs.runs.create(id="guest")
            tx.programs.runs.finish("guest", "interrupted")
        age(clock)
        assert month_old(store, "programs") == {"run": 1}
        with store.read() as tx:
            assert [run.id for run in tx.programs.runs.list().items] == [store.run_id]
            assert len(tx.programs.bindings.list(store.run_id or "")) == 1


# What nobody can read, or bind again, stops no prune: it stays, and the rest goes as a dry run says.


LONG = "x" * 700


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
